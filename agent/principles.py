"""The owner's principles, held against a change before anything is launched.

What the baseline has already is not the change's doing: a flag, a variable or a file that says what the baseline says
breaks nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Protocol

from optagent.agent.change import Change
from optagent.agent.flag_facts import LOSSY_LOADS, OTHER_MODEL, PRECISION, RAISING, canonical
from optagent.tools.calls.configuration import Configuration, FlagValue

LOSSY_THRESHOLDS = ("speculative-accept-threshold-single", "speculative-accept-threshold-acc")
"""Below 1 these accept drafts that the target would not have produced, which changes the law of the output."""
SCANNED = 200_000
"""So many characters of an environment file are looked through."""

_PRECISION = re.compile(r"FP8|FP4|INT8|INT4|QUANT|W4A|W8A|TF32|DTYPE|SKIP_SOFTMAX")
_RAISES = re.compile(r"DISABLE|IGNORED")
"""In the names of variables that, switched on, keep something from being cut."""
_MADE_UP = re.compile(r"SIMULATE|SKIP_IO|MAX_NEW_TOKENS_LIMIT")
"""In the names of variables with which a server answers without computing the answer, or cuts it short."""
_OFF = frozenset({"", "0", "-1", "false", "no", "off", "none", "auto", "default"})
_FLOAT32 = frozenset({"float32", "float", "fp32"})
_FLOAT16 = frozenset({"bf16", "bfloat16", "half", "float16", "fp16"})
_ASSIGNED = re.compile(
    r"""(?<![\w$])["']?(?P<name>[A-Z][A-Z0-9]{0,40}_[A-Z0-9_]{1,80})["']?[ \t]*\]?[ \t]*[:=,][ \t]*"""
    r"""(?P<value>"[^"\n]{0,200}"|'[^'\n]{0,200}'|[^\s,)}\]#;"']{0,200})"""
)


class PrinciplesLike(Protocol):
    @property
    def preserve_precision(self) -> bool: ...
    @property
    def allow_code_changes(self) -> bool: ...
    @property
    def forbidden_flags(self) -> list[str]: ...


def conflicts(change: Change, principles: PrinciplesLike, base: Configuration | None = None) -> list[str]:
    """What in the change breaks a principle, one line each; empty when nothing does. `base` is what it is put on."""
    before = base or Configuration("")
    found: list[str] = []
    if principles.preserve_precision:
        found += [f"precision is to be preserved: {why}" for rule in _PRECISION_RULES for why in rule(change, before)]
    found += [f"the output would not be the model's: {why}" for why in _made_up(change, before)]
    if change.patch and not principles.allow_code_changes:
        found.append(f"code changes are not allowed: patch {change.patch}")
    forbidden = {canonical(name) for name in principles.forbidden_flags}
    found += [
        f"--{name} is forbidden"
        for name, value in change.flags.items()
        if canonical(name) in forbidden and value is not None
    ]
    return found


def _set(change: Change, base: Configuration) -> Iterator[tuple[str, str, str]]:
    """The flags that the change gives another value than the baseline's: as written, by first name, the value."""
    before = {canonical(name): value for name, value in base.flags.items()}
    for name, value in change.flags.items():
        if value is None or value is False or _same(value, before.get(canonical(name))):
            continue
        yield name, canonical(name), str(value)


def _same(value: FlagValue, before: FlagValue | None) -> bool:
    return before is not None and str(value).lower() == str(before).lower()


def _precision_flags(change: Change, base: Configuration) -> Iterator[str]:
    for name, flag, value in _set(change, base):
        if flag in PRECISION and value and value.lower() not in PRECISION[flag]:
            yield f"--{name} {value}"


def _lowered(change: Change, base: Configuration) -> Iterator[str]:
    """What the baseline computes or keeps in float32, and the change does not any more."""
    before = {canonical(name): value for name, value in base.flags.items()}
    for name, value in change.flags.items():
        flag = canonical(name)
        had = str(before.get(flag, False)).lower()
        if flag in RAISING and had == "true" and value in (None, False):
            yield f"without --{name}"
        elif flag in PRECISION and had in _FLOAT32 and str(value).lower() not in _FLOAT32:
            left = f"--{name} {value}" if value is not None else f"without --{name}"
            if value is None or str(value).lower() in PRECISION[flag]:  # the others are told by _precision_flags
                yield f"{left}, where the baseline has {had}"


def _lossy_acceptance(change: Change, base: Configuration) -> Iterator[str]:
    for name, flag, value in _set(change, base):
        if flag in LOSSY_THRESHOLDS and not _is_one(value):
            yield f"--{name} {value} accepts what the model would not have said"


def _is_one(value: str) -> bool:
    try:
        return float(value) >= 1
    except ValueError:
        return False


def _other_weights(change: Change, base: Configuration) -> Iterator[str]:
    """Weights that are random, cut while they are loaded, or another model's."""
    for name, flag, value in _set(change, base):
        if flag == "load-format" and value in LOSSY_LOADS:
            yield f"--{name} {value} {LOSSY_LOADS[value]}"
        elif flag in OTHER_MODEL and not (flag == "json-model-override-args" and value.strip() in ("", "{}")):
            yield f"--{name} {value[:80]} {OTHER_MODEL[flag]}"
        elif flag == "speculative-draft-load-format" and value == "dummy" and not _dummy(base):
            yield f"--{name} dummy drafts at random"


def _dummy(base: Configuration) -> bool:
    return base.flags.get("load-format") == "dummy"


def _precision_variables(change: Change, base: Configuration) -> Iterator[str]:
    for said, name, value in _variables(change, base):
        if _PRECISION.search(name) and not _RAISES.search(name) and not _keeps(name, value):
            yield said


def _keeps(name: str, value: str) -> bool:
    """Whether the value of a variable that names a type leaves it wide; a recurrent state is kept in float32."""
    if value.lower() in _FLOAT32:
        return True
    return "DTYPE" in name and value.lower() in _FLOAT16 and not re.search(r"SSM|STATE", name)


def _made_up(change: Change, base: Configuration) -> Iterator[str]:
    for name, flag, value in _set(change, base):
        if flag == "ep-dispatch-algorithm" and value == "fake":
            yield f"--{name} fake chooses experts at random"
    for said, name, _ in _variables(change, base):
        if _MADE_UP.search(name):
            yield said


def _variables(change: Change, base: Configuration) -> Iterator[tuple[str, str, str]]:
    """The variables that the change switches on, itself or in an environment file: as told, the name, the value."""
    for name, value in change.env.items():
        if value is not None and value.strip().lower() not in _OFF and base.env.get(name) != value:
            yield f"{name}={value}", name.upper(), value.strip()
    for path, text in change.files.items():
        there = set(assignments(base.files.get(path, "")))
        for name, value in assignments(text):
            if value.lower() not in _OFF and (name, value) not in there:
                yield f"{name}={value} in {path}", name, value


def assignments(text: str) -> list[tuple[str, str]]:
    """The variables in capitals that an environment file seems to set, each once, with their values.

    Read without being run: `os.environ["NAME"] = "value"`, `setdefault("NAME", "value")`, `"NAME": "value"` in a table,
    `NAME=value` of a shell. A value that is computed is told as it is written. Comments do not count.
    """
    lines = [line for line in text[:SCANNED].splitlines() if not line.lstrip().startswith("#")]
    found = (_ASSIGNED.finditer(line) for line in lines)
    return list(dict.fromkeys((m["name"], m["value"].strip("\"' ")) for matches in found for m in matches))


PrecisionRule = Callable[[Change, Configuration], Iterator[str]]

_PRECISION_RULES: tuple[PrecisionRule, ...] = (
    _precision_flags,
    _lowered,
    _lossy_acceptance,
    _other_weights,
    _precision_variables,
)
