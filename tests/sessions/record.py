"""Records the reference campaign anew, for the tests that replay it.

python tests/sessions/record.py

Two sittings on the simulated deployment: up to the question, and from its answer to the end. Replays compare every
tool call, so a change in what the state machine asks of its tools needs new recordings; look at their difference first.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OPTAGENT = [sys.executable, "-m", "optagent"]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        campaign = Path(folder)
        shutil.copy(ROOT / "optagent.toml", campaign)
        for part in ("plans", "handoffs"):
            shutil.copytree(ROOT / part, campaign / part)
        record(campaign, "reference-1-to-the-question", 3)
        subprocess.run([*OPTAGENT, "-C", str(campaign), "answer", "Q1", "approve"], check=True)
        record(campaign, "reference-2-to-the-end", 0)


def record(campaign: Path, name: str, expected: int) -> None:
    """One sitting, recorded; its exit status must be the expected one."""
    plain = campaign / f"{name}.jsonl"
    done = subprocess.run([*OPTAGENT, "-C", str(campaign), "continue", "--record", str(plain)], check=False)
    if done.returncode != expected:
        raise SystemExit(f"{name}: exit status {done.returncode}, expected {expected}")
    with (HERE / f"{name}.jsonl.gz").open("wb") as out, gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as packed:
        packed.write(plain.read_bytes())
    print(f"{name}: {plain.stat().st_size} bytes")


if __name__ == "__main__":
    main()
