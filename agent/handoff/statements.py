"""What single statements of a free-form handoff say: claims that can be looked at, verdicts, effects, conditions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from optagent.agent.conditions import parse_condition
from optagent.agent.plan.marks import take_marks
from optagent.agent.plan.model import Status

_PACKAGES = (
    "cuda|sglang|vllm|pytorch|torch|nccl|flashinfer|python|triton|rocm|driver|transformers|sgl-kernel|sgl_kernel|llama\\.cpp|"
    "deepgemm|cutlass|tensorrt-llm"
)
_NAMES = {"pytorch": "torch", "sgl_kernel": "sgl-kernel"}
_VERSION = re.compile(
    rf"(?<![\w/.-])({_PACKAGES})`?\s*(?:==|=|version:?|:|v)?\s*\*{{0,2}}`?v?(\d+(?:\.\d+)+[\w.+]*|(?<=\s)\d{{2}})(?![\w%])",
    re.IGNORECASE,
)
_RATE = re.compile(
    r"(?<![\w.–-])(\d{1,7}(?:\.\d+)?)\*{0,2}\s*(?:tok(?:ens?)?\s?/\s?s(?:ec(?:ond)?)?|tokens? per second|t/s|TPS)\b",
    re.IGNORECASE,
)
_COMMIT = re.compile(
    r"(?:\bcommits?\b|\bHEAD\b|\bsha\b|\brev(?:ision)?\b|\bat\b)[\s:@(]*`?([0-9a-f]{7,40})\b`?", re.IGNORECASE
)
_HEAD = re.compile(r"\bHEAD\b(?:\s+is)?(?:\s+at)?[\s:@(]*`?([0-9a-f]{7,40})\b")
_HASH = re.compile(r"(?<![\w./-])((?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40})(?![\w./-])")
_BRANCH = re.compile(
    r"\bbranch\b\*{0,2}[\s:|;]*\*{0,2}\s*(?:`([\w./-]{1,100})`|((?=[\w.]*[/-])[\w./-]{1,100}\w|main\b|master\b))",
    re.IGNORECASE,
)
_SERVER = re.compile(
    r"\b(?:port[\s:=]*|(?:localhost|127\.0\.0\.1|0\.0\.0\.0):)(\d{2,5})\b|\bpid[\s:=#]*(\d{1,8})\b", re.IGNORECASE
)
_RUNNING = re.compile(r"\b(?:running|is up|serving|listening|live|listens)\b", re.IGNORECASE)
_STOPPED = re.compile(r"\b(?:stopped|not running|is down|killed|shut down|exited|crashed|no server)\b", re.IGNORECASE)
_LOG = re.compile(r"(?<![\w:/])((?:~|\.{0,2})/?(?:[\w.@+-]+/)*[\w.@+-]+\.log)\b")
_GPUS = re.compile(
    r"(?<![\w.])(\d{1,3})\s*[x×]\s*((?:NVIDIA\s+|AMD\s+)?(?:[ABHL]\d{2,3}S?|GB\d{3}|MI\d{3}X?|RTX(?:[ -](?:PRO|A?\d{4}))+)"
    r"(?:[ -](?:SXM\d?|PCIe|NVL|HBM\d\w?|\d+\s?GB|Blackwell|Server Edition|Workstation Edition))*)\b",
    re.IGNORECASE,
)
_FREE = re.compile(r"(\d{1,6}(?:\.\d+)?)\s*([GT])i?B\s+(?:of\s+disk\s+)?(?:are\s+|is\s+)?free\b", re.IGNORECASE)
_PATCH = re.compile(r"(?<![\w:/])((?:~|\.{0,2})/?(?:[\w.@+-]+/)*[\w.@+-]+\.(?:diff|patch))\b")
_APPLIED = re.compile(r"\bappl(?:ied|ies)\b", re.IGNORECASE)
_NOT_APPLIED = re.compile(r"\b(?:not|un|never)[ -]?(?:yet )?(?:been )?applied|backed out|taken out\b", re.IGNORECASE)
_RESULT = re.compile(r"(?<![\w:/])((?:~|\.{0,2})/?(?:[\w.@+-]+/)+[\w.@+-]+\.jsonl?)\b")
_PATH = re.compile(
    r"(?<![\w/.~:])((?:~|/(?:home|data|mnt|opt|srv|root|scratch|models?|workspace|raid|nfs|lustre|gpfs))(?:/[\w.@+-]+)+)"
)
"""A path that is a place of a file system and not of an API: by the folder that it begins in."""

_CLAUSE = re.compile(
    r"\b(?P<word>unless|until|when|once|requires?|needs?|retry (?:after|with|on|when|if)|revisit (?:after|with|on|when|if)|"
    r"again (?:after|with|on|when|if)|worth (?:a|another) (?:look|try) (?:after|with|on|when|if))\b(?P<rest>[^;\n]{1,160})",
    re.IGNORECASE,
)
_COMPARISON = re.compile(r"[A-Za-z_][\w.-]*\s*(?:>=|<=|==|!=|>|<|≥|≤)\s*[\w.+-]*\w")
_PACKAGE_VERSION = re.compile(rf"(?<![\w-])({_PACKAGES})\s+v?(\d+(?:\.\d+)*)\b", re.IGNORECASE)
_BAD_WHEN = re.compile(r"(?:fail|crash|hang|break|broke|error|die|oom)\w*\s+\Z", re.IGNORECASE)

_FROM_TO = re.compile(
    r"(\d{1,6}(?:\.\d+)?)\s*(?:tok/s)?\s*(?:→|->|=>|to)\s*\*{0,2}(\d{1,6}(?:\.\d+)?)\s*(?:tok|t/s|TPS)", re.IGNORECASE
)
_PERCENT = re.compile(r"(?<![\w.-])([+−-]\s?\d{1,4}(?:\.\d+)?)\s?%")
_VERDICTS = (
    ("revert", r"reverted|rolled back|slower|regress\w*|worse|backed out"),
    (
        "failed",
        r"failed|fails|crash\w*|broke\w*|error\w*|out of memory|oom|died|hung|hangs|unsupported|"
        r"not supported|unavailable|page-?fault",
    ),
    ("inconclusive", r"inconclusive|no (?:change|effect|gain|difference)|within noise|neutral|parity"),
    ("keep", r"kept|adopted|faster|landed|shipped"),
)
_VERDICT_WORDS = tuple((verdict, re.compile(rf"\b(?:{words})\b", re.IGNORECASE)) for verdict, words in _VERDICTS)
_VERDICT_OF = {
    Status.KEPT: "keep",
    Status.REVERTED: "revert",
    Status.DEAD: "failed",
    Status.INCONCLUSIVE: "inconclusive",
    Status.INVALID: "invalid",
}


class Guess(NamedTuple):
    """What a statement can be held against: kind, subject and expected value of a claim."""

    kind: str
    subject: str = ""
    expected: str = ""


def guesses(text: str) -> Iterator[Guess]:
    """Everything in `text` that could be looked at; a statement without anything of the kind is a plain note."""
    found = dict.fromkeys([
        *_versions(text), *_rates(text), *_revisions(text), *_servers(text), *_logs(text), *_gpus(text), *_disk(text),
        *_patches(text), *_results(text), *_paths(text),
    ])  # fmt: skip
    yield from found or [Guess("note")]


def retry_condition(text: str) -> str | None:
    """The condition in a clause such as `unless CUDA 13` or `requires sglang >= 0.5.24`, as `agent.conditions` reads it."""
    for clause in _CLAUSE.finditer(text):
        if clause["word"].lower() == "when" and _BAD_WHEN.search(text[: clause.start()]):
            continue
        if comparison := _COMPARISON.search(clause["rest"]):
            words = comparison[0].replace("≥", ">=").replace("≤", "<=").lower()
            try:
                return str(parse_condition(words))
            except ValueError:
                continue
        if package := _PACKAGE_VERSION.search(clause["rest"]):
            return f"{_name(package[1])}>={package[2]}"
    return None


def verdict(text: str) -> str | None:
    """How an attempt ended, from its marks and words; None when the text does not say."""
    _, marks = take_marks(text)
    settled = next((_VERDICT_OF[m.status] for m in marks if m.status in _VERDICT_OF), None)
    return settled or next((name for name, pattern in _VERDICT_WORDS if pattern.search(text)), None)


def effect(text: str) -> float | None:
    """The relative gain that `82 → 89.5 tok/s` or `+9 %` states."""
    if match := _FROM_TO.search(text):
        before, after = float(match[1]), float(match[2])
        if before > 0:
            return round(after / before - 1, 4)
    if match := _PERCENT.search(text):
        return round(float(re.sub(r"\s", "", match[1]).replace("−", "-")) / 100, 6)
    return None


def log_path(text: str) -> str | None:
    """The first path of a log in `text`."""
    match = _LOG.search(text)
    return match[1] if match else None


def _versions(text: str) -> Iterator[Guess]:
    for match in _VERSION.finditer(text):
        if "." in match[2] or match[1].lower() == "cuda":
            yield Guess("version", _name(match[1]), match[2].rstrip(".+"))


def _name(package: str) -> str:
    return _NAMES.get(package.lower(), package.lower())


def _rates(text: str) -> Iterator[Guess]:
    for match in _RATE.finditer(text):
        yield Guess("note", "tok/s", match[1])


def _revisions(text: str) -> Iterator[Guess]:
    head = {m[1] for m in _HEAD.finditer(text)}
    for match in (*_COMMIT.finditer(text), *_HASH.finditer(text)):
        if re.search(r"\d", match[1]):
            yield Guess("revision", "" if match[1] in head else "commit", match[1])
    for match in _BRANCH.finditer(text):
        yield Guess("revision", "branch", match[1] or match[2])


def _servers(text: str) -> Iterator[Guess]:
    expected = "stopped" if _STOPPED.search(text) else "running" if _RUNNING.search(text) else ""
    for match in _SERVER.finditer(text):
        subject = f"port {match[1]}" if match[1] else f"pid {match[2]}"
        yield Guess("server", subject, expected) if expected else Guess("note", subject)


def _logs(text: str) -> Iterator[Guess]:
    for match in _LOG.finditer(text):
        yield Guess("log", match[1])


def _gpus(text: str) -> Iterator[Guess]:
    for match in _GPUS.finditer(text):
        yield Guess("gpus", "", f"{match[1]} x {match[2].strip()}")


def _disk(text: str) -> Iterator[Guess]:
    for match in _FREE.finditer(text):
        if re.search(r"\bdisk|\bspace|\bstorage|\bnvme", text, re.IGNORECASE):
            yield Guess("disk", "", f"{float(match[1]) * (1000 if match[2] in 'tT' else 1):g}")


def _patches(text: str) -> Iterator[Guess]:
    for match in _PATCH.finditer(text):
        after = re.split(r"[,;]", text[match.end() :], maxsplit=1)[0]
        said = after if _APPLIED.search(after) else text
        expected = "not applied" if _NOT_APPLIED.search(said) else "applied" if _APPLIED.search(said) else ""
        yield Guess("patch", match[1], expected) if expected else Guess("path", match[1])


def _results(text: str) -> Iterator[Guess]:
    rates = {match[1] for match in _RATE.finditer(text)}
    claimed = f"output_throughput={next(iter(rates))}" if len(rates) == 1 else ""
    for match in _RESULT.finditer(text):
        yield Guess("result", match[1], claimed)


def _paths(text: str) -> Iterator[Guess]:
    for match in _PATH.finditer(text):
        path = match[1].rstrip(".")
        if not path.endswith((".log", ".json", ".jsonl", ".diff", ".patch")):
            yield Guess("path", path)
