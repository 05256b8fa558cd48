"""Flags that SGLang 0.5.23 refuses together, and flags that other flags leave without effect.

Each rule is one check of SGLang's own argument resolution. Nearly all of them were confirmed by giving the flags to a
real 0.5.23 on a CPU; the rest, which need GPUs, were read in its source. Other releases have other checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from optagent.agent.flag_facts import canonical
from optagent.tools.calls.configuration import Configuration, FlagValue
from optagent.tools.calls.server import FlagTold

IPC = "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"
_OFF = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True)
class Setup:
    """A configuration as the server's rules see it: `flags` by their first names, those left out not among them."""

    flags: Mapping[str, FlagValue]
    env: Mapping[str, str]

    def has(self, name: str) -> bool:
        return name in self.flags

    def number(self, name: str, default: float | None = None) -> float | None:
        """The number a flag is set to; `default` when it is not given, None when its value is no number."""
        if name not in self.flags:
            return default
        try:
            return float(self.flags[name])
        except (ValueError, OverflowError):
            return None

    def text(self, name: str, default: str = "") -> str:
        return str(self.flags.get(name, default))

    def variable(self, name: str) -> bool:
        return self.env.get(name, "").strip().lower() not in _OFF

    @property
    def algorithm(self) -> str:
        """The speculative algorithm in capitals, NEXTN by the name it stands for; "" for none."""
        told = self.text("speculative-algorithm").upper()
        return "EAGLE" if told == "NEXTN" else told

    @property
    def eagle(self) -> bool:
        return self.algorithm in ("EAGLE", "EAGLE3")

    @property
    def adaptive(self) -> bool:
        """Whether the numbers of speculation are chosen by the server."""
        return self.has("speculative-adaptive") and self.eagle

    @property
    def attention_groups(self) -> float | None:
        """How many groups attention is parallel over; the retired --enable-dp-attention counts them with dp-size."""
        groups = self.number("attn-dp-size", 1)
        return self.number("dp-size", 1) if groups == 1 and self.has("enable-dp-attention") else groups

    @property
    def replicas(self) -> float | None:
        retired = self.has("enable-dp-attention") and self.number("attn-dp-size", 1) == 1
        return 1 if retired else self.number("dp-size", 1)


def setup_of(configuration: Configuration, told: Mapping[str, FlagTold]) -> Setup:
    """`configuration` as the server reads it: a name that a single flag begins with is that flag, the last one wins."""
    flags: dict[str, FlagValue] = {}
    for name, value in configuration.flags.items():
        begins = told[name].begins if name in told and not told[name].known else []
        full = canonical(begins[0] if len(begins) == 1 else name)
        if value is not False:
            flags[full] = value
    return Setup(flags, configuration.env)


Rule = Callable[[Setup], str]
"""What is wrong with a configuration as a whole; "" when the rule has nothing against it."""


def _unknown_algorithm(s: Setup) -> str:
    known = ("", "EAGLE", "EAGLE3", "STANDALONE", "NGRAM", "DFLASH", "DSPARK", "UNO", "FROZEN_KV_MTP")
    return "" if s.algorithm in known else f"--speculative-algorithm {s.algorithm[:40]}: there is no such algorithm"


def _numbers_of_speculation(s: Setup) -> str:
    if not (s.eagle or s.algorithm == "STANDALONE") or s.adaptive:
        return ""
    steps, topk, tokens = (s.has(f"speculative-{n}") for n in ("num-steps", "eagle-topk", "num-draft-tokens"))
    if topk and steps and not tokens and s.number("speculative-eagle-topk") == 1:
        return ""  # the draft tokens follow from the steps
    if steps == topk == tokens:
        return ""
    return (
        "--speculative-num-steps, --speculative-eagle-topk and --speculative-num-draft-tokens have to be set "
        "all three, or none of them"
    )


def _tokens_of_a_chain(s: Setup) -> str:
    steps, tokens = s.number("speculative-num-steps"), s.number("speculative-num-draft-tokens")
    chain = s.number("speculative-eagle-topk") == 1 and (s.eagle or s.algorithm == "STANDALONE") and not s.adaptive
    if not chain or steps is None or tokens is None or tokens == steps + 1:
        return ""
    return (
        f"with --speculative-eagle-topk 1 the server sets --speculative-num-draft-tokens to {steps + 1:g}, one more "
        f"than the steps, whatever is given ({tokens:g})"
    )


def _paged_tree(s: Setup) -> str:
    page, backend, topk = s.number("page-size", 1), s.text("attention-backend"), s.number("speculative-eagle-topk", 1)
    allowed: tuple[str, ...] = ("flashinfer", "fa3", "triton")
    if s.algorithm == "NGRAM":
        topk, allowed = s.number("speculative-ngram-max-bfs-breadth", 10), ("flashinfer",)
    elif not (s.eagle or s.algorithm == "STANDALONE"):
        return ""
    if page is None or topk is None or page <= 1 or topk <= 1 or not backend or backend in allowed:
        return ""
    return f"drafting a tree with --page-size {page:g} works on {_or(allowed)} only, not on {backend[:40]}"


def _tree_on_trtllm(s: Setup) -> str:
    backends = {s.text(f"{phase}attention-backend") for phase in ("", "prefill-", "decode-")}
    topk = s.number("speculative-eagle-topk", 1)
    tree = topk is not None and topk > 1 and (s.eagle or s.algorithm == "STANDALONE")
    return "trtllm_mha takes --speculative-eagle-topk 1 only" if tree and "trtllm_mha" in backends else ""


def _rejection_sampling(s: Setup) -> str:
    flag = "--speculative-use-rejection-sampling"
    if not s.has(flag[2:]):
        return ""
    if s.algorithm == "STANDALONE":
        return f"{flag} is for EAGLE, EAGLE3 and NEXTN, not for STANDALONE"
    if not s.eagle:
        return ""
    if s.number("speculative-eagle-topk", 1) != 1:
        return f"{flag} requires --speculative-eagle-topk 1"
    thresholds = [s.number(f"speculative-accept-threshold-{n}", 1) for n in ("single", "acc")]
    return f"{flag} excludes acceptance thresholds other than 1" if thresholds != [1, 1] else ""


def _block_verification(s: Setup) -> str:
    flag = "--speculative-use-block-verification"
    if not s.has(flag[2:]) or s.algorithm in ("DFLASH", "DSPARK"):
        return ""
    if not s.eagle:
        return f"{flag} needs EAGLE, EAGLE3, NEXTN, DFLASH or DSPARK"
    return f"{flag} requires --speculative-eagle-topk 1" if s.number("speculative-eagle-topk", 1) != 1 else ""


def _replicas_with_attention_groups(s: Setup) -> str:
    replicas, groups = s.replicas, s.attention_groups
    if replicas is None or groups is None or replicas <= 1 or groups <= 1:
        return ""
    return f"--dp-size {replicas:g} (replicas) and --attn-dp-size {groups:g} exclude each other"


def _attention_groups_divide(s: Setup) -> str:
    tp, groups, context = s.number("tp-size", 1), s.attention_groups, s.number("attn-cp-size", 1)
    if not tp or not groups or not context or tp % (groups * context) == 0:
        return ""
    return (
        f"--tp-size {tp:g} must be divisible by the attention's groups: --attn-dp-size {groups:g} times "
        f"--attn-cp-size {context:g}"
    )


def _attention_groups_with_drafts(s: Setup) -> str:
    groups = s.attention_groups
    if groups is None or groups <= 1 or s.algorithm not in ("NGRAM", "STANDALONE"):
        return ""
    return f"{s.algorithm} does not work with data-parallel attention (--attn-dp-size {groups:g})"


def _expert_groups(s: Setup) -> str:
    tp, ep, dp, cp = (s.number(f"{n}-size", 1) for n in ("tp", "ep", "moe-dp", "attn-cp"))
    if not tp or not ep or not dp or not cp or dp <= 1:
        return ""
    if tp % dp or ep * dp > tp or (ep > 1 and ep * dp != tp):
        return f"--ep-size {ep:g} times --moe-dp-size {dp:g} does not fit --tp-size {tp:g}"
    if s.number("pp-size", 1) != 1:
        return "--moe-dp-size above 1 excludes pipeline parallelism"
    return f"--moe-dp-size {dp:g} must equal --attn-cp-size {cp:g}" if cp != dp else ""


def _decode_context(s: Setup) -> str:
    tp, dcp, backend = s.number("tp-size", 1), s.number("dcp-size", 1), s.text("dcp-comm-backend")
    if not tp or not dcp:
        return ""
    if tp % dcp:
        return f"--tp-size {tp:g} must be divisible by --dcp-size {dcp:g}"
    if dcp > 1 and s.has("enable-prefill-cp"):
        return "--dcp-size above 1 excludes --enable-prefill-cp"
    if dcp <= 1 and backend in ("a2a", "fi_a2a"):
        return f"--dcp-comm-backend {backend} requires --dcp-size above 1"
    if s.has("dcp-replicate-q-proj") and (dcp <= 1 or backend not in ("a2a", "fi_a2a", "")):
        return "--dcp-replicate-q-proj requires --dcp-size above 1 and an a2a backend"
    return ""


def _prefill_context(s: Setup) -> str:
    wrong = s.has("enable-prefill-cp") and not s.has("cp-strategy")
    return "--enable-prefill-cp needs --cp-strategy" if wrong else ""


def _two_batch_overlap(s: Setup) -> str:
    if not s.has("enable-two-batch-overlap") or s.text("moe-a2a-backend", "none") != "none":
        return ""
    groups = s.attention_groups
    if groups is None or groups > 1:
        return ""
    return "--enable-two-batch-overlap needs --attn-dp-size above 1, or an all-to-all backend for experts"


def _expert_balancing(s: Setup) -> str:
    alone = s.has("enable-eplb") and s.number("ep-size", 1) == 1 and s.text("moe-a2a-backend", "none") == "none"
    return "--enable-eplb needs --ep-size above 1" if alone else ""


def _lm_head_exchange(s: Setup) -> str:
    flag = "--enable-tp-lm-head-all-to-all"
    if not s.has(flag[2:]):
        return ""
    groups = s.attention_groups
    if s.has("enable-dp-lm-head"):
        return f"{flag} excludes --enable-dp-lm-head"
    return "" if groups != 1 and groups == s.number("tp-size", 1) else f"{flag} needs --attn-dp-size equal to --tp-size"


def _pipeline_with_drafts(s: Setup) -> str:
    stages = s.number("pp-size", 1)
    if stages is None or stages <= 1 or not s.algorithm or s.algorithm == "DSPARK":
        return ""
    if s.algorithm != "EAGLE":
        return f"--pp-size {stages:g} excludes {s.algorithm}"
    apart = s.text("disaggregation-mode") == "prefill" or s.variable("SGLANG_ENABLE_PP_SPEC")
    return "" if apart else f"--pp-size {stages:g} with EAGLE works on a prefill node only"


def _deterministic_attention(s: Setup) -> str:
    able = ("ascend", "fa3", "fa4", "flashinfer", "intel_xpu", "triton")
    backend = s.text("attention-backend")
    if not s.has("enable-deterministic-inference") or not backend or backend in able:
        return ""
    return f"--enable-deterministic-inference works on {_or(able)}, not on {backend[:40]}"


def _compile_without_padding(s: Setup) -> str:
    both = s.has("disable-cuda-graph-padding") and s.has("enable-torch-compile")
    return "--disable-cuda-graph-padding excludes --enable-torch-compile" if both else ""


def _caches(s: Setup) -> str:
    if s.has("enable-hierarchical-cache") and s.has("disable-radix-cache"):
        return "--enable-hierarchical-cache excludes --disable-radix-cache"
    if not s.has("enable-lmcache"):
        return ""
    for other in ("enable-hierarchical-cache", "enable-unified-cache-external-linker", "disable-radix-cache"):
        if s.has(other):
            return f"--enable-lmcache excludes --{other}"
    groups, dcp = s.attention_groups, s.number("dcp-size", 1)
    others = ("speculation", s.algorithm), ("data-parallel attention", groups != 1), ("--dcp-size", dcp != 1)
    return next((f"--enable-lmcache excludes {name}" for name, there in others if there), "")


def _priorities(s: Setup) -> str:
    policy = s.text("schedule-policy", "fcfs")
    if s.has("enable-priority-scheduling"):
        return "" if policy in ("fcfs", "lof") else f"--enable-priority-scheduling needs fcfs or lof, not {policy[:40]}"
    by_priority = s.text("retraction-policy") == "priority"
    return "--retraction-policy priority needs --enable-priority-scheduling" if by_priority else ""


def _chunks_of_pages(s: Setup) -> str:
    chunk, page = s.number("chunked-prefill-size"), s.number("page-size")
    if chunk is None or not page or chunk <= 0 or chunk % page == 0 or s.text("disaggregation-mode") == "decode":
        return ""
    return f"--chunked-prefill-size {chunk:g} must be divisible by --page-size {page:g}"


def _or(names: tuple[str, ...]) -> str:
    return " or ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else names[0]


EXCLUDED: tuple[Rule, ...] = (
    _unknown_algorithm,
    _numbers_of_speculation,
    _tokens_of_a_chain,
    _paged_tree,
    _tree_on_trtllm,
    _rejection_sampling,
    _block_verification,
    _replicas_with_attention_groups,
    _attention_groups_divide,
    _attention_groups_with_drafts,
    _expert_groups,
    _decode_context,
    _prefill_context,
    _two_batch_overlap,
    _expert_balancing,
    _lm_head_exchange,
    _pipeline_with_drafts,
    _deterministic_attention,
    _compile_without_padding,
    _caches,
    _priorities,
    _chunks_of_pages,
)


def _mixed_chunk(s: Setup) -> str:
    off = s.algorithm in ("NGRAM", "STANDALONE", "UNO", "FROZEN_KV_MTP")
    return f"the server switches --enable-mixed-chunk off with {s.algorithm}" if off else ""


def _sampling_without_eagle(s: Setup) -> str:
    heard = s.eagle or s.algorithm in ("STANDALONE", "UNO")
    return "" if heard else "--speculative-use-rejection-sampling is heard by EAGLE, EAGLE3 and NEXTN only"


def _adaptive(s: Setup) -> str:
    groups = s.attention_groups
    if not s.eagle or s.number("speculative-eagle-topk", 1) != 1:
        return "the server drops --speculative-adaptive unless it drafts with EAGLE and --speculative-eagle-topk 1"
    dropped = groups != 1 or s.has("enable-two-batch-overlap")
    return (
        "the server drops --speculative-adaptive with data-parallel attention or two-batch overlap" if dropped else ""
    )


def _lm_head(s: Setup) -> str:
    alone = s.attention_groups == 1 and s.replicas == 1
    return "the server drops --enable-dp-lm-head without data-parallel attention (--attn-dp-size)" if alone else ""


def _numbers_without_algorithm(s: Setup) -> str:
    return "" if s.algorithm else "without --speculative-algorithm nothing is drafted"


def _ipc_deterministic(s: Setup) -> str:
    off = s.has("enable-deterministic-inference")
    return f"the server leaves {IPC} off with --enable-deterministic-inference" if off else ""


def _ipc_group(s: Setup) -> str:
    size = s.number("tp-size", 1)
    off = size is not None and size not in (2, 4, 8)
    return f"{IPC} serves 2, 4 or 8 GPUs, not --tp-size {size:g}" if off else ""


def _ipc_memory(s: Setup) -> str:
    settings = s.env.get("PYTORCH_CUDA_ALLOC_CONF", "") + s.env.get("PYTORCH_ALLOC_CONF", "")
    clash = "expandable_segments:true" in settings.lower().replace(" ", "")
    return f"{IPC} is said to fail with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" if clash else ""


WITHOUT_EFFECT: tuple[tuple[str, Rule], ...] = (
    ("enable-mixed-chunk", _mixed_chunk),
    ("speculative-use-rejection-sampling", _sampling_without_eagle),
    ("speculative-adaptive", _adaptive),
    ("enable-dp-lm-head", _lm_head),
    ("speculative-num-steps", _numbers_without_algorithm),
    ("speculative-eagle-topk", _numbers_without_algorithm),
    ("speculative-num-draft-tokens", _numbers_without_algorithm),
    (IPC, _ipc_deterministic),
    (IPC, _ipc_group),
)
"""A flag or variable that is on, and what leaves it without effect: trying it would measure nothing."""
DOUBTFUL: tuple[tuple[str, Rule], ...] = ((IPC, _ipc_memory),)
"""Likewise, but some deployments do run that way."""
