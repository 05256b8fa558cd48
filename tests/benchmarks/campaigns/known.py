"""What is found out about a deployment once, and kept on disk: what can be reached in it, and what a campaign may cost."""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from campaigns import deployment as deployments
from campaigns.best import Best, best_reachable
from campaigns.loading import Death, Loaded
from campaigns.model import Model
from campaigns.space import Space, space_of
from campaigns.trace import Goal

BUDGET_LAUNCHES = 80
"""GPU-hours of so many launches of the baseline, with a run each, are what a campaign may cost."""
SOURCES = (Path(__file__).parent, Path(__file__).parents[3] / "tools" / "simulator")
SUFFIXES = (".py", ".yaml", ".toml", ".jsonl")
PLAN = "plan.md"


@dataclass(frozen=True)
class Known:
    """`loads` are all that were computed on the way."""

    goal: Goal
    best: Best
    loads: dict[str, Loaded | Death]


@lru_cache(maxsize=4)
def at_hand(folder: Path) -> tuple[Known, Model, Space]:
    """What is known of a deployment, with its model and space: once in each process."""
    known = prepare(folder)
    model = Model(deployments.read(folder))
    model.loads = known.loads
    return known, model, the_space(model)


def the_space(model: Model) -> Space:
    deployment = model.deployment
    return space_of(deployment.plan, deployment.base, deployment.config.principles)


def prepare(folder: Path) -> Known:
    """Find the best reachable value, or take it from the disk where it was found before."""
    kept = Path(tempfile.gettempdir()) / f"optagent-campaigns-{os.getuid()}"
    cache = kept / f"{folder.name}-{version(folder)}.pickle"
    if cache.is_file() and kept.stat().st_uid == os.getuid():
        known = pickle.loads(cache.read_bytes())
        assert isinstance(known, Known)
        return known
    model = Model(deployments.read(folder))
    best = best_reachable(model, the_space(model))
    base = model.value(model.deployment.base)
    assert base is not None
    known = Known(Goal(base, best.value, budget_hours(model)), best, model.loads)
    kept.mkdir(mode=0o700, exist_ok=True)
    temporary = cache.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(pickle.dumps(known))
    temporary.replace(cache)
    return known


def budget_hours(model: Model) -> float:
    """GPU-hours of BUDGET_LAUNCHES launches of the baseline with a run each."""
    deployment = model.deployment
    workload = deployment.config.workload
    launch = model.launch(deployment.base)
    seconds = model.warm_up_s(launch, workload) + model.load(launch, workload).seconds
    loads = 2 if deployment.config.measuring.discard_first else 1
    total = model.ending(deployment.base).seconds + loads * seconds
    return BUDGET_LAUNCHES * total * deployment.gpus / 3600


def version(folder: Path) -> str:
    """A hash of the deployment and of everything its numbers are computed with."""
    sources = (folder, *(source for source in SOURCES))
    paths = [p for source in sources for p in sorted(source.rglob("*")) if p.suffix in SUFFIXES]
    here = [p for p in paths if deployments.FOLDER not in p.parents or folder in p.parents]
    found = hashlib.sha256()
    for path in (*here, folder / PLAN):
        found.update(path.read_bytes() if path.is_file() else b"")
    return found.hexdigest()[:16]
