"""A Llama model directory without weights: a configuration, and a real tokenizer trained on Python's own sources.

Run with an interpreter that has `tokenizers`: `python tiny_model.py FOLDER`. Serve it with `--load-format dummy`.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 2048
CONTEXT = 2048
BEGIN, END, PAD = "<|begin|>", "<|end|>", "<|pad|>"
TRAINING_TEXT_MB = 2.0

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
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


def write_model(folder: Path) -> None:
    """Write the model directory."""
    folder.mkdir(parents=True, exist_ok=True)
    trained_tokenizer().save(str(folder / "tokenizer.json"))
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
