"""What recordings looked like before, and how each earlier format is read as the next one.

The chain goes one version at a time, on read; a file is never rewritten. Formats so far:

1. Until 2026-12, and whatever was written by hand. `config` leaves out what was at its default then, and defaults have
   changed since. The earliest of them ask a server with `sample` (twice a launch: alone, and several at a time) instead of
   `examine`, and `list_flags` lists every flag by its bare name. Formats were not told apart then, so that which of this a
   file has is seen from its calls; many have nothing of it.
2. Today. `config` is whole, and the header says what made the recording (`made_by`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

CURRENT = 2
"""The format that is written now."""


@dataclass(frozen=True)
class RecordedLine:
    """One tool call as it stands in a file, with the line it stands on."""

    number: int
    tool: Any
    body: dict[str, Any]


@dataclass(frozen=True)
class Migrated:
    """Calls and settings in today's format, and what had to be read otherwise, in words."""

    calls: tuple[RecordedLine, ...]
    config: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def migrate(version: int, config: Mapping[str, Any], calls: Sequence[RecordedLine]) -> Migrated:
    """A recording of `version`, read as one of today's."""
    migrated = Migrated(tuple(calls), config)
    for earlier in range(version, CURRENT):
        migrated = MIGRATIONS[earlier](migrated)
    return migrated


def _from_1(before: Migrated) -> Migrated:
    calls: list[RecordedLine] = []
    sampled = flagged = 0
    for call in before.calls:
        if call.tool == "sample":
            sampled += 1
            examination = _examination(call)
            if calls and _same_launch(calls[-1], examination):
                calls[-1] = _with_pass(calls[-1], examination)
            else:
                calls.append(examination)
        elif call.tool == "list_flags" and isinstance(_result(call).get("flags"), list):
            flagged += 1
            calls.append(_flags_by_name(call))
        else:
            calls.append(call)
    notes = (
        *([f"{_times(sampled, 'call')} of sample read as examine, without log-probabilities"] if sampled else []),
        *([f"{_times(flagged, 'list')} of bare flags read as known flags"] if flagged else []),
    )
    config, defaults = _with_old_defaults(before, sampled > 0)
    return Migrated(tuple(calls), config, before.notes + notes + defaults)


ONE_RUN = {"calibration_launches": 6, "runs": 1, "pool": False}
"""What `measuring` was at its defaults when every launch was measured once and held against its pair."""
SAMPLES = {"prompts": 8, "max_tokens": 64, "concurrency": 4, "texts": 0}
"""What `gate` was at its defaults when a server was asked with `sample`."""
GONE = {"measuring": {"bundle_from_s"}}
"""Settings that there were for a while."""


def _with_old_defaults(before: Migrated, sampled: bool) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The settings with the defaults of their time, and which those are in words."""
    runs = [str(_request(call)["run"]) for call in before.calls if call.tool == "bench" and "run" in _request(call)]
    old: dict[str, dict[str, Any]] = {}
    if runs and before.config and not any("-run" in run for run in runs):
        old["measuring"] = ONE_RUN | ({"discard_first": False} if sampled else {})
    if sampled and before.config:
        old["gate"] = SAMPLES
    config = dict(before.config)
    for section in config.keys() & GONE.keys():
        if isinstance(config[section], Mapping):
            config[section] = {k: v for k, v in config[section].items() if k not in GONE[section]}
    for section, values in old.items():
        if isinstance(config.get(section, {}), Mapping):
            config[section] = values | dict(config.get(section, {}))
    names = ", ".join(f"{section}.{key}" for section, values in old.items() for key in values)
    return config, ((f"defaults of its time for {names}",) if names else ())


MIGRATIONS: dict[int, Callable[[Migrated], Migrated]] = {1: _from_1}
"""By the version that is read: each gives the one after it."""


def _examination(call: RecordedLine) -> RecordedLine:
    """A `sample` as an examination of one pass. Answers were told word for word; an examination counts them."""
    request, result = _request(call), _result(call)
    answers = [a for a in result.get("answers", []) if isinstance(a, dict)]
    counted = {
        "concurrency": request.get("concurrency", 1),
        "failed": sum(bool(a.get("error")) for a in answers),
        "empty": sum(not a.get("error") and not a.get("text") for a in answers),
        "stopped": sum(a.get("finish_reason") == "stop" for a in answers),
        "tokens": sum(a.get("tokens") or 0 for a in answers if isinstance(a.get("tokens"), int)),
    }
    kept = {k: v for k, v in result.items() if k in ("accept_length", "problem", "simulated")}
    passes = [{k: v for k, v in counted.items() if v or k == "concurrency"}] if answers else []
    body = call.body | {"request": request | {"file": ""}, "result": kept | {"passes": passes}}
    return replace(call, tool="examine", body=body | {"tool": "examine"})


def _same_launch(one: RecordedLine, other: RecordedLine) -> bool:
    """Whether two examinations were the two halves of one: the same questions to the same server, one after the other."""
    if one.tool != "examine":
        return False
    first, second = _request(one), _request(other)
    return all(first.get(k) == second.get(k) for k in ("url", "prompts", "max_tokens")) and (
        _pass_key(first) == _pass_key(second) != ""
    )


def _pass_key(request: dict[str, Any]) -> str:
    """The effect's key without its last part, which named the pass."""
    return str(request.get("key", "")).rpartition(":")[0]


def _with_pass(one: RecordedLine, other: RecordedLine) -> RecordedLine:
    request = _request(one) | {"concurrency": _request(other).get("concurrency", 1)}
    result = _result(one) | _result(other)
    result["passes"] = [*_result(one).get("passes", []), *_result(other).get("passes", [])]
    return replace(one, body=one.body | {"request": request, "result": result})


def _flags_by_name(call: RecordedLine) -> RecordedLine:
    names = [name for name in _result(call)["flags"] if isinstance(name, str)]
    request = {"names": []} | _request(call)
    result = _result(call) | {"flags": {name: {"known": True} for name in names}}
    return replace(call, body=call.body | {"request": request, "result": result})


def _request(call: RecordedLine) -> dict[str, Any]:
    request = call.body.get("request")
    return request if isinstance(request, dict) else {}


def _result(call: RecordedLine) -> dict[str, Any]:
    result = call.body.get("result")
    return result if isinstance(result, dict) else {}


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


NAMES = frozenset({"key", "expect_sha256", "file", "result_file", "references", "log"})
"""Fields of a request that only name something of optagent's own: what is done is the same under another name."""
WORDS = {"write_text": frozenset({"text"})}
"""Fields whose wording is for people: plan and handoff are written as the program of the day writes them."""


def same_but_for_names(tool: str, recorded: dict[str, Any], asked: dict[str, Any]) -> bool:
    """Whether two requests ask the same thing, named or worded otherwise."""
    left_out = NAMES | WORDS.get(tool, frozenset())

    def rest(request: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in request.items() if k not in left_out}

    return rest(recorded) == rest(asked)
