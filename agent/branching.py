"""Setting a branch up: a campaign of its own in a folder of its own, on a simulated deployment, as the recording left it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from optagent.agent.branch import (
    SCENARIO,
    as_toml,
    files_at,
    journal_for,
    kept_patches,
    last_probe,
    simulated_config,
    sizes_of,
)
from optagent.agent.config import CONFIG_NAME, CampaignConfig
from optagent.agent.errors import BadInput
from optagent.agent.ledger import Ledger
from optagent.agent.plan.fits import misfits
from optagent.agent.plan.read import read_plan
from optagent.agent.records import Baseline
from optagent.agent.replay import Replayed
from optagent.tools.calls.configuration import FlagValue
from optagent.tools.calls.patch import ApplyPatch, KeepPatch, RestoreCheckout
from optagent.tools.calls.server import ListFlags
from optagent.tools.calls.world import ProbeWorld
from optagent.tools.journal_store import Draft
from optagent.tools.live import LiveToolbox
from optagent.tools.paths import OutsideCampaign, inside
from optagent.tools.simulator.standing_in import write_scenario
from optagent.tools.stub import Recording


@dataclass(frozen=True)
class Branch:
    """A branch that can be run: its folder, settings and journal, and in words what could not be had from the recording."""

    folder: Path
    config: CampaignConfig
    journal: list[Draft]
    missing: tuple[str, ...]


def lay_out(
    recording: Recording,
    replayed: Replayed,
    folder: Path,
    port: int,
    planner: str,
    plan: Path | None = None,
    owner: Path | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Branch:
    """Make the branch in an empty folder. `plan` takes the place of the recorded one, `owner` is the folder of the campaign,
    which is only read, and only for files that the recording does not tell of. Raises BadInput."""
    recorded = replayed.session.config
    real = recorded.deployment.kind != "simulator"
    config = simulated_config(recorded, port, planner)
    missing = ["the files of earlier examinations: output is held against the branch's own baseline"]
    if real:
        missing.append(
            "the recorded deployment is real, and the simulator is another one: the baseline is measured again"
        )
    _scenario(recording, replayed, folder, owner, missing)
    files = _Files(folder, files_at(recording.calls, replayed.calls), (owner,) if owner else (), missing)
    config = _documents(files, config, plan)
    toolbox = LiveToolbox(folder, config.deployment, report)
    ledger = replayed.session.ledger
    config, ledger = _known_flags(toolbox, config, ledger, missing)
    revisions = _checkout(toolbox, config, replayed, ledger, missing)
    (folder / CONFIG_NAME).write_text(as_toml(config), encoding="utf-8")
    journal = journal_for(replayed.session.journal.entries(), ledger, revisions, same_deployment=not real)
    return Branch(folder, config, journal, tuple(missing))


def _scenario(recording: Recording, replayed: Replayed, folder: Path, owner: Path | None, missing: list[str]) -> None:
    """The scenario that the branch is simulated by, with the environments that the recording knows."""
    deployment = replayed.session.config.deployment
    probed = last_probe(recording.calls, replayed.calls)
    environment = (replayed.session.ledger.baseline or replayed.session.baseline()).configuration.environment
    there = [name for name, exists in probed.get("environments", {}).items() if exists]
    at_first = [*there, environment, deployment.environment]
    source: str | Path | None = None
    if deployment.kind == "simulator":
        source = deployment.scenario
        if source is not None and owner is not None and (owner / source / "scenario.yaml").is_file():
            source = owner / source
    versions: dict[str, dict[str, str]] = {name: {} for name in deployment.environments}
    sizes: dict[str, Any] | None = None
    if deployment.kind != "simulator":
        versions[environment] = dict(probed.get("versions", {}))
        sizes = sizes_of(recording.calls, replayed.calls, deployment.flags)
        if not replayed.session.config.measuring.discard_first:
            sizes["cold_first_cell"] = 1.0
        missing.append("its model and kernels: the reference scenario's, in the sizes that the recording tells of")
    try:
        write_scenario(source, folder / SCENARIO, versions, at_first, sizes)
    except ValueError:
        missing.append(f"its scenario {str(source)!r} is not here: the reference scenario takes its place")
        write_scenario(None, folder / SCENARIO, versions, at_first, sizes)


@dataclass(frozen=True)
class _Files:
    """Files of the branch, from the recording or else from folders that may be read."""

    folder: Path
    recorded: dict[str, str]
    others: tuple[Path, ...]
    missing: list[str]

    def write(self, path: str, text: str) -> None:
        try:
            place = inside(self.folder, path)
        except OutsideCampaign:
            self.missing.append(f"{path} lies outside the campaign: it is left out")
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def fetch(self, path: str) -> bool:
        """Put a file there that the recording does not tell of; whether there is one."""
        for folder in self.others:
            try:
                text = inside(folder, path).read_text(encoding="utf-8")
            except (OutsideCampaign, OSError, UnicodeDecodeError):
                continue
            self.write(path, text)
            return True
        return False


def _documents(files: _Files, config: CampaignConfig, plan: Path | None) -> CampaignConfig:
    """Plan, handoffs, patches, prompts and environment files. Returns the settings, with a load that can be put on."""
    for path, text in files.recorded.items():
        files.write(path, text)
    if plan is not None:
        files = replace(files, others=(plan.parent, *files.others))
        text = _text_of(plan)
        read = read_plan(text, str(plan))
        if fatal := next((p for p in read.problems if p.fatal), None):
            raise BadInput(str(plan), fatal.message, fatal.line)
        files.write(config.plan, text)
        for item in read.items:
            if item.change is not None and item.change.patch:
                _beside(files, plan, config.plan, item.change.patch)
    _patches(files, config)
    for path in config.deployment.files.values():
        if path not in files.recorded and not files.fetch(path):
            files.missing.append(f"{path}, an environment file of the first baseline")
    workload = config.workload
    prompts = workload.prompts
    if workload.dataset == "custom" and prompts and prompts not in files.recorded and not files.fetch(prompts):
        files.missing.append(f"{prompts}, the prompts: random tokens of the same length take their place")
        body = workload.model_dump(mode="json") | {"dataset": "random-ids", "prompts": None}
        return config.model_copy(update={"workload": type(workload).model_validate(body)})
    return config


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(path), f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _beside(files: _Files, plan: Path, recorded_plan: str, name: str) -> None:
    """A patch file of another plan, which lies beside it."""
    try:
        text = inside(plan.parent, name).read_text(encoding="utf-8")
    except (OutsideCampaign, OSError, UnicodeDecodeError):
        return
    files.write(str(PurePosixPath(recorded_plan).parent / name), text)


def _patches(files: _Files, config: CampaignConfig) -> None:
    """Patch files that the plan names: sought elsewhere where the recording did not come to them."""

    def is_there(name: str) -> bool:
        path = str(PurePosixPath(config.plan).parent / name)
        return (files.folder / path).is_file() or files.fetch(path)

    text = (files.folder / config.plan).read_text(encoding="utf-8") if (files.folder / config.plan).is_file() else ""
    for problem in misfits(read_plan(text, config.plan), config.deployment.environments, is_there):
        files.missing.append(problem.message)


def _known_flags(
    toolbox: LiveToolbox, config: CampaignConfig, ledger: Ledger, missing: list[str]
) -> tuple[CampaignConfig, Ledger]:
    """The settings and the known-good state without flags that the simulated server does not have."""
    baseline = ledger.baseline
    names = sorted({*config.deployment.flags, *(baseline.configuration.flags if baseline else {})})
    told = toolbox.list_flags(ListFlags(environment=config.deployment.environment, names=names)).flags
    unknown = {name for name in names if told is not None and not told[name].known}
    if not unknown:
        return config, ledger
    missing.append(
        f"flags that the simulated server does not have: {', '.join(f'--{name}' for name in sorted(unknown))}"
    )
    deployment = config.deployment.model_copy(update={"flags": _without(config.deployment.flags, unknown)})
    known = [_with_flags(b, unknown) if b else None for b in (ledger.first_baseline, ledger.baseline)]
    ledger = replace(ledger, first_baseline=known[0], baseline=known[1])
    return config.model_copy(update={"deployment": deployment}), ledger


def _with_flags(baseline: Baseline, unknown: Collection[str]) -> Baseline:
    configuration = baseline.configuration
    return replace(baseline, configuration=replace(configuration, flags=_without(dict(configuration.flags), unknown)))


def _without(flags: Mapping[str, FlagValue], unknown: Collection[str]) -> dict[str, FlagValue]:
    return {name: value for name, value in flags.items() if name not in unknown}


def _checkout(
    toolbox: LiveToolbox, config: CampaignConfig, replayed: Replayed, ledger: Ledger, missing: list[str]
) -> dict[str, str]:
    """Bring the simulated checkout to where the recorded one was, and return which commit stands for which."""
    seen = toolbox.probe(ProbeWorld(environment=config.deployment.environment)).checkout
    if seen is None:
        return {}
    revisions: dict[str, str] = {}
    now = seen.revision
    for patch in kept_patches(replayed.session.journal.entries()):
        base = revisions.get(patch.base, patch.base)
        base = base if base in (now, *revisions.values()) else now
        applied = toolbox.apply_patch(
            ApplyPatch(key="branch", experiment=patch.experiment, base=base, diff=patch.diff, message=patch.message)
        )
        kept = toolbox.keep_patch(KeepPatch(key="branch", experiment=patch.experiment)) if applied.revision else None
        if kept is None or kept.revision is None:
            problem = applied.problem or (kept.problem if kept else None) or "no reason given"
            missing.append(
                f"the kept patch of {patch.experiment} does not go on the simulated checkout: {problem[:120]}"
            )
            continue
        revisions |= {patch.revision: kept.revision, applied.revision or "": kept.revision}
        now = kept.revision
    for baseline in (ledger.baseline, ledger.first_baseline):
        revision = baseline.configuration.revision if baseline else ""
        if revision and revision not in revisions and revision != seen.revision:
            revisions[revision] = now if baseline is ledger.baseline else seen.revision
    toolbox.restore_checkout(RestoreCheckout(key="branch", revision=now, reason="as the recording left it"))
    return revisions
