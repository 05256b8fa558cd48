"""Makes the small campaign ready to be run: `python prepare_campaign.py FOLDER [ITEM ...]`.

FOLDER becomes a copy of `campaign/` with the built environment, a free port and a checkout of SGLang's source of its own
filled in. Of the plan only the named items are left; without names, all are.
"""

from __future__ import annotations

import random
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = "source"
"""The checkout, in the campaign's folder."""


def prepare(cache: Path, folder: Path, items: list[str]) -> None:
    """Write the campaign to the new `folder`, on the environment that was built in `cache`."""
    shutil.copytree(HERE / "campaign", folder)
    subprocess.run(["git", "clone", "--quiet", "--local", str(cache / "checkout"), str(folder / SOURCE)], check=True)
    config = folder / "optagent.toml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("@CACHE@", str(cache)).replace("@PORT@", str(free_port())), encoding="utf-8")
    if items:
        plan = folder / "plans" / "plan.md"
        plan.write_text(only(plan.read_text(encoding="utf-8"), items), encoding="utf-8")


def only(plan: str, items: list[str]) -> str:
    """The plan with these items alone, in its own order. Raises ValueError for one that it does not have."""
    head, *sections = re.split(r"(?m)^(?=## )", plan)
    by_id = {match[1]: section for section in sections if (match := re.search(r"(?m)^id: (\S+)$", section))}
    if unknown := set(items) - by_id.keys():
        raise ValueError(f"the plan has no {', '.join(sorted(unknown))}")
    return head + "".join(section for name, section in by_id.items() if name in items)


def free_port() -> int:
    """A port below those of outgoing connections, which could take it while a server loads; by chance, so that test
    runs beside each other rarely meet."""
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(10_000, first_ephemeral), 50):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no port is free")


def built_environment() -> Path:
    """The folder of the built environment. Raises SystemExit where there is none."""
    checked = subprocess.run([sys.executable, HERE / "build.py", "--check"], capture_output=True, text=True)
    if checked.returncode != 0:
        raise SystemExit(f"there is no real SGLang in {checked.stdout.strip()}: make sglang-cpu builds it")
    return Path(checked.stdout.strip())


if __name__ == "__main__":
    prepare(built_environment(), Path(sys.argv[1]), sys.argv[2:])
