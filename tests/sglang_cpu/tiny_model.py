"""A tiny Llama: a configuration, a real tokenizer trained on Python's own sources, and random weights that speak.

The weights are drawn from a seed at a scale where greedy answers depend on their prompt and do not run into loops. What
SGLang draws itself (`--load-format dummy`) is so small that every token is as likely as any other: no gate can tell such
a server from a broken one.

Run with an interpreter that has SGLang's own dependencies: `python tiny_model.py FOLDER`.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 2048
CONTEXT = 2048
BEGIN, END, PAD = "<|begin|>", "<|end|>", "<|pad|>"
TRAINING_TEXT_MB = 2.0

SEED = 1
LAYER_GAIN = 1.5
"""Standard deviation of what a projection gives over that of what it is given. Above 1 the layers outweigh the token
embedding that they are added to, so that an answer depends on more than its last token."""
LOGIT_SD = 4.0
"""Standard deviation of the logits: the likeliest of all tokens then has a log-probability around -1."""

HIDDEN, INTERMEDIATE, LAYERS = 256, 768, 4
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 64

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "torch_dtype": "bfloat16",
}
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def training_texts() -> list[str]:
    """Sources of the standard library, the first `TRAINING_TEXT_MB` of them in the order of their names."""
    texts: list[str] = []
    left = TRAINING_TEXT_MB * 1e6
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        texts.append(text)
        left -= len(text)
        if left <= 0:
            break
    return texts


def trained_tokenizer() -> Tokenizer:
    """A byte-level BPE tokenizer with `VOCABULARY` entries."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BEGIN, END, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_texts(), trainer)
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise SystemExit(f"the tokenizer has {tokenizer.get_vocab_size()} entries instead of {VOCABULARY}")
    return tokenizer


def random_weights() -> dict[str, torch.Tensor]:
    """Every tensor of the model by its name, in bfloat16; the same bits for the same seed."""
    draws = np.random.RandomState(SEED)  # the one generator of numpy whose stream never changes

    def drawn(rows: int, columns: int, sd: float) -> torch.Tensor:
        return torch.from_numpy(draws.standard_normal((rows, columns)) * sd).to(torch.bfloat16)

    projections = {
        "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
        "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
    }
    weights = {
        "model.embed_tokens": drawn(VOCABULARY, HIDDEN, 1.0),
        "lm_head": drawn(VOCABULARY, HIDDEN, LOGIT_SD / HIDDEN**0.5),
    }
    for layer in (f"model.layers.{number}" for number in range(LAYERS)):
        for name, (rows, columns) in projections.items():
            weights[f"{layer}.{name}"] = drawn(rows, columns, LAYER_GAIN / columns**0.5)
    norms = ["model.norm"]
    norms += [f"model.layers.{n}.{name}_layernorm" for n in range(LAYERS) for name in ("input", "post_attention")]
    weights |= {name: torch.ones(HIDDEN, dtype=torch.bfloat16) for name in norms}
    return {f"{name}.weight": tensor for name, tensor in weights.items()}


def write_model(folder: Path) -> None:
    """Write the model directory."""
    folder.mkdir(parents=True, exist_ok=True)
    trained_tokenizer().save(str(folder / "tokenizer.json"))
    save_file(random_weights(), folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "pad_token": PAD,
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    generation_config = {key: CONFIG[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    for name, body in {
        "config.json": CONFIG,
        "generation_config.json": generation_config,
        "tokenizer_config.json": tokenizer_config,
    }.items():
        (folder / name).write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_model(Path(sys.argv[1]))
