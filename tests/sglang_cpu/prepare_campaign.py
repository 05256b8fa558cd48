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
    """Write the campaign to the new `folder`, on the environment that was built in `cache`. Raises ValueError, before
    anything is written, where it cannot."""
    plan = plan_for(folder, items)
    shutil.copytree(HERE / "campaign", folder)
    try:
        clone = ["git", "clone", "--quiet", "--local", str(cache / "checkout"), str(folder / SOURCE)]
        subprocess.run(clone, check=True)
    except subprocess.CalledProcessError:
        shutil.rmtree(folder)
        raise
    config = folder / "optagent.toml"
    config.write_text(filled(config.read_text(encoding="utf-8"), cache, free_port()), encoding="utf-8")
    (folder / "plans" / "plan.md").write_text(plan, encoding="utf-8")


def plan_for(folder: Path, items: list[str]) -> str:
    """The plan with these items, or with all. Raises ValueError for one that is unknown, and where the folder is taken."""
    if folder.exists():
        raise ValueError(f"{folder}: exists already; name a new folder")
    plan = (HERE / "campaign" / "plans" / "plan.md").read_text(encoding="utf-8")
    return only(plan, items) if items else plan


def filled(config: str, cache: Path, port: int) -> str:
    """The configuration with the environment's place and the port filled in, but for its comments."""
    lines = config.splitlines(keepends=True)
    return "".join(
        line if line.startswith("#") else line.replace("@CACHE@", str(cache)).replace("@PORT@", str(port))
        for line in lines
    )


def only(plan: str, items: list[str]) -> str:
    """The plan with these items alone, in its own order. Raises ValueError for one that it does not have."""
    head, *sections = re.split(r"(?m)^(?=## )", plan)
    by_id = {match[1]: section for section in sections if (match := re.search(r"(?m)^id: (\S+)$", section))}
    if unknown := set(items) - by_id.keys():
        raise ValueError(f"the plan has no {', '.join(sorted(unknown))}; it has {', '.join(by_id)}")
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


def main(words: list[str]) -> None:
    """Raises SystemExit with one line where it cannot be done."""
    if not words or words[0].startswith("-"):
        raise SystemExit("usage: prepare_campaign.py FOLDER [ITEM ...]")
    try:
        plan_for(Path(words[0]), words[1:])  # before the environment, which takes a while to be looked at
        prepare(built_environment(), Path(words[0]), words[1:])
    except (ValueError, OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"prepare_campaign.py: {error}") from None


if __name__ == "__main__":
    main(sys.argv[1:])
