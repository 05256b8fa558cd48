"""Start-up of the commands against what the interpreter itself needs, as ratios from one run.

python tests/benchmarks/startup.py [--runs N]

Each command runs alternately with its yardstick, so that a busy machine slows both; the ratio is of the medians.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
OPTAGENT = [sys.executable, "-m", "optagent"]
PAIRS = (
    ("optagent status", [*OPTAGENT, "status"], "import pydantic", 2.5),
    ("optagent continue --dry-run", [*OPTAGENT, "continue", "--dry-run"], "import langgraph.graph", 1.5),
)


def main() -> int:
    """Print one line a pair."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=15, help="runs of each command (default 15)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a ratio is above its limit")
    options = parser.parse_args()
    runs = options.runs
    with tempfile.TemporaryDirectory() as folder:
        campaign = Path(folder) / "campaign"
        campaign.mkdir()
        shutil.copy(ROOT / "optagent.toml", campaign)
        for part in ("plans", "handoffs"):
            shutil.copytree(ROOT / part, campaign / part)
        within = [measure(name, command, yardstick, limit, campaign, runs) for name, command, yardstick, limit in PAIRS]
    return 0 if all(within) or not options.strict else 1


def measure(name: str, command: list[str], yardstick: str, limit: float, campaign: Path, runs: int) -> bool:
    """Time both alternately, print the ratio of their medians, and tell whether it is within the limit."""
    reference = [sys.executable, "-c", yardstick]
    timed: dict[str, list[float]] = {"command": [], "reference": []}
    seconds(command, campaign)
    seconds(reference, campaign)
    for _ in range(runs):
        timed["command"].append(seconds(command, campaign))
        timed["reference"].append(seconds(reference, campaign))
    mine, theirs = statistics.median(timed["command"]), statistics.median(timed["reference"])
    ratio = mine / theirs
    print(f"{name}: {mine * 1000:.0f} ms; python -c '{yardstick}': {theirs * 1000:.0f} ms; ", end="")
    print(f"ratio {ratio:.2f}, {'within' if ratio <= limit else 'ABOVE'} {limit}")
    return ratio <= limit


def seconds(command: list[str], folder: Path) -> float:
    """Wall time of one run, in seconds. Raises when the command failed (asking, status 3, is not a failure)."""
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    took = time.perf_counter() - began
    if done.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr}")
    return took


if __name__ == "__main__":
    sys.exit(main())
