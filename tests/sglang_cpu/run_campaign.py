"""Runs the whole small campaign on the real server and shows what came of it: `python run_campaign.py FOLDER [ITEM ...]`.

FOLDER is made anew by prepare_campaign.py. Exit status: that of `optagent continue`, with 3 (it waits for an answer, as
this campaign does in the end) counted as success.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from optagent.agent.experiments import BASELINE, Experiment
from optagent.agent.ledger import Ledger, fold
from optagent.agent.total_gain import total_gain
from optagent.tools.journal_store import JournalStore

HERE = Path(__file__).resolve().parent
WAITS = 3


def main(folder: Path, items: list[str]) -> int:
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, HERE / "prepare_campaign.py", folder, *items], check=True)
    began = time.monotonic()
    optagent = [sys.executable, "-m", "optagent", "-C", str(folder), "continue"]
    status = subprocess.run([*optagent, "--record", str(folder / "session.jsonl")]).returncode
    with JournalStore.open(folder / ".optagent" / "journal.db", create=False, read_only=True) as store:
        ledger = fold(store.entries())
    print(f"\n{(time.monotonic() - began) / 60:.0f} minutes, {launches(ledger)} launches, exit status {status}")
    print("\n".join(table(ledger)))
    return 0 if status == WAITS else status


def table(ledger: Ledger) -> Iterator[str]:
    """Item, verdict, effect with its 95 % interval, runs of both sides; then where it began and where it ended."""
    yield f"{'item':<22}{'verdict':<14}{'effect':<30}runs"
    for experiment in ledger.experiments.values():
        name = experiment.item or experiment.kind
        yield f"{name:<22}{experiment.verdict:<14}{effect(experiment):<30}{len(experiment.runs)}"
    for question in ledger.open_questions():
        yield f"{question.item or '-':<22}{'asked':<14}{question.reason} ({question.id})"
    for label, baseline in (("first baseline", ledger.first_baseline), ("kept", ledger.baseline)):
        if baseline is not None and baseline.measurement is not None:
            m = baseline.measurement
            yield f"{label}: {m.metric} {m.value:.4g} over {m.runs} runs"
    yield total_gain(ledger) or "nothing was kept"


def effect(experiment: Experiment) -> str:
    if experiment.effect is None or experiment.kind == BASELINE:
        return "-"
    span = f" [{experiment.low:+.0%}, {experiment.high:+.0%}]" if experiment.low and experiment.high else ""
    return f"{experiment.effect:+.1%}{span}"


def launches(ledger: Ledger) -> int:
    return sum(len(e.runs) + len(e.failures) for e in ledger.experiments.values())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute(), sys.argv[2:]))
