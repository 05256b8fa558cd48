"""Branching off a recorded session: what the simulator starts from, and how the two compare. Functions of their arguments.

The recorded part keeps its verdicts, dead ends, questions and statuses. What was measured on a real SGLang says nothing
about the simulator, so those measurements stay behind, and in either case the branch is a sitting of its own, which measures
the baseline before anything else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optagent.agent.config import CampaignConfig, config_from
from optagent.agent.jsonable import to_body
from optagent.agent.ledger import Ledger
from optagent.agent.records import Baseline
from optagent.agent.total_gain import total_gain
from optagent.tools.journal_store import Draft, Entry
from optagent.tools.stub import RecordedCall

SCENARIO = "scenario"
"""The folder of the branch that says what is simulated."""
MEMORY_GB = 90.0
"""Of a GPU of the reference scenario, roughly, for a recording that tells of no GPU."""
CHECKOUT = ".optagent/simulation/checkout"

NOT_CARRIED = frozenset({"gate"})
"""Kinds of entries whose files are not in a recording."""
OF_ONE_DEPLOYMENT = frozenset({"run", "intent", "result", "launched", "stopped", "restored"})
"""Kinds of entries that tell what one deployment gave, and nothing about another."""


def files_at(calls: Sequence[RecordedCall], answered: int) -> dict[str, str]:
    """The campaign's files as the recording left them after so many calls: as they were last read or written. A file that is
    read for the first time later is taken as it is then: nobody has told of it before."""
    files: dict[str, str] = {}
    for number, call in enumerate(calls):
        path = str((call.request or {}).get("path", ""))
        if call.tool == "write_text" and number < answered and call.result.get("written", True):
            files[path] = str((call.request or {}).get("text", ""))
        elif call.tool == "read_text" and isinstance(text := call.result.get("text"), str):
            files[path] = text if number < answered else files.get(path, text)
    return files


def last_probe(calls: Sequence[RecordedCall], answered: int) -> Mapping[str, Any]:
    """What the world looked like last; empty when nobody had looked."""
    probes = [call.result for call in calls[:answered] if call.tool == "probe"]
    return probes[-1] if probes else {}


def sizes_of(calls: Sequence[RecordedCall], answered: int, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of a real deployment as far as its recording tells them, for the scenario that stands in for it: the GPUs that
    the probe saw, and weights and KV cache as a launch's log told them, of a model under tensor parallelism 8."""
    gpus = last_probe(calls, answered).get("gpus") or []
    width = next((flags[n] for n in ("tp-size", "tensor-parallel-size", "tp") if isinstance(flags.get(n), int)), 1)
    hardware: dict[str, Any] = {"count": max(len(gpus), width)}
    if gpus:
        hardware |= {"gpu": gpus[0]["name"], "memory_gb": gpus[0]["memory_total_gb"]}
        hardware |= {"compute_capability": c} if (c := gpus[0].get("compute_capability")) else {}
    told = [c.result.get("reading") or {} for c in calls[:answered] if c.tool == "launch"]
    weights = next((r["weights_gb"] for r in told if r.get("weights_gb")), hardware.get("memory_gb", MEMORY_GB) / 2)
    model: dict[str, Any] = {"weights_gb": round(weights * width / 8, 3)}
    if (r := next((r for r in told if r.get("kv_gb") and r.get("kv_tokens")), None)) is not None:
        model["kv_bytes_per_token"] = max(1, round(r["kv_gb"] * 2**30 / r["kv_tokens"] * width / 8))
    return {"hardware": hardware, "model": model}


def simulated_config(config: CampaignConfig, port: int, planner: str) -> CampaignConfig:
    """The campaign's settings for a simulated deployment in a folder of its own."""
    body = config.model_dump(mode="json")
    deployment = body["deployment"]
    deployment |= {"kind": "simulator", "scenario": SCENARIO, "host": "127.0.0.1", "port": port}
    deployment["environments"] = {
        name: {"env": settings.get("env", {})} for name, settings in deployment["environments"].items()
    }
    deployment["source"] = CHECKOUT if deployment["source"] else None
    deployment["source_path"] = "python"
    return config_from(body | {"planner": planner}, "the recording")


@dataclass(frozen=True)
class KeptPatch:
    """A patch that the recorded session had kept: what has to be done again in another checkout."""

    experiment: str
    base: str
    diff: str
    message: str
    revision: str


def kept_patches(entries: Iterable[Entry]) -> list[KeptPatch]:
    """The patches that were kept, in the order in which they were."""
    asked: dict[str, Mapping[str, Any]] = {}
    kept: list[KeptPatch] = []
    tools: dict[str, str] = {}
    for entry in entries:
        if entry.kind == "intent" and entry.key and entry.body["tool"] in ("apply_patch", "keep_patch"):
            tools[entry.key] = entry.body["request"].get("experiment", "")
            if entry.body["tool"] == "apply_patch":
                asked[tools[entry.key]] = entry.body["request"]
        elif entry.kind == "result" and entry.body["tool"] == "keep_patch" and (entry.key or "") in tools:
            patch, revision = asked.get(tools[entry.key or ""]), entry.body["result"].get("revision")
            if patch is not None and revision:
                kept.append(
                    KeptPatch(patch["experiment"], patch["base"], patch["diff"], patch.get("message", ""), revision)
                )
    return kept


def journal_for(
    entries: Iterable[Entry], ledger: Ledger, revisions: Mapping[str, str], *, same_deployment: bool
) -> list[Draft]:
    """The journal that the branch goes on from. `revisions` maps commits of the recorded checkout to those of the branch's.

    On another deployment than the recorded one nothing is measured yet, the baseline least of all.
    """
    left = NOT_CARRIED if same_deployment else NOT_CARRIED | OF_ONE_DEPLOYMENT
    kept = [e for e in entries if e.kind not in left]
    drafts = [Draft(e.kind, _mapped(e.body, revisions), e.key, e.at) for e in kept]
    if not same_deployment:
        for kind, baseline in (("first-baseline", ledger.first_baseline), ("baseline", ledger.baseline)):
            if baseline is not None:
                unmeasured = Baseline(baseline.configuration, None, baseline.label)
                drafts.append(Draft(kind, _mapped(to_body(unmeasured), revisions)))
    if not ledger.ended:
        drafts.append(Draft("sitting-ended", {"id": ledger.sitting}, ledger.sitting))
    return drafts


def _mapped(body: Mapping[str, Any], revisions: Mapping[str, str]) -> dict[str, Any]:
    text = json.dumps(body)
    for recorded, now in revisions.items():
        text = text.replace(recorded, now)
    mapped: dict[str, Any] = json.loads(text)
    return mapped


@dataclass(frozen=True)
class StepTaken:
    """One experiment after the branch. `effect` is a fraction, None where none was measured."""

    experiment: str
    kind: str
    title: str
    item: str | None
    verdict: str
    effect: float | None


@dataclass(frozen=True)
class Course:
    """What one side did from the branch on. `kept` are the items that it kept, `launches` counts servers started."""

    steps: tuple[StepTaken, ...]
    kept: tuple[str, ...]
    best: str
    launches: int
    total_gain: str
    ended: str


def course_of(ledger: Ledger, entries: Iterable[Entry], after: int, known: int, ended: str) -> Course:
    """What happened after journal entry `after`, when there were `known` experiments."""
    new = list(ledger.experiments.values())[known:]
    steps = tuple(StepTaken(e.id, e.kind, e.title, e.item, e.verdict or "under way", e.effect) for e in new)
    kept = tuple(s.item for s in steps if s.item and s.verdict == "keep")
    launches = sum(1 for e in entries if e.seq > after and e.kind == "intent" and e.body["tool"] == "launch")
    return Course(steps, kept, _best(ledger.baseline), launches, total_gain(ledger), ended)


def _best(baseline: Baseline | None) -> str:
    if baseline is None:
        return ""
    measured = baseline.measurement
    value = f", {measured.metric} {measured.value:.4g}" if measured else ", not measured"
    simulated = " (simulated)" if measured and measured.simulated else ""
    return f"{baseline.label or 'as configured'}{value}{simulated}"


def as_toml(config: CampaignConfig) -> str:
    """The settings as optagent.toml: one table a section."""
    body = config.model_dump(mode="json")
    plain = {k: v for k, v in body.items() if not isinstance(v, dict)}
    lines = [f"{key} = {_toml(value)}" for key, value in plain.items() if value is not None]
    for section, values in body.items():
        if isinstance(values, dict):
            lines += ["", f"[{section}]"]
            lines += [f"{_toml_key(key)} = {_toml(value)}" for key, value in values.items() if value is not None]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{_toml_key(k)} = {_toml(v)}" for k, v in value.items() if v is not None)
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(_toml(v) for v in value)}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


def _toml_key(key: str) -> str:
    return json.dumps(key, ensure_ascii=False)
