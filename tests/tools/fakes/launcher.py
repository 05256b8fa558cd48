"""Launches the stub server as optagent would, in a process that a test can kill: FOLDER PORT LAUNCH BEHAVIOUR."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from optagent.tools.commands import Command, Mark
from optagent.tools.deployment import Timeouts
from optagent.tools.launch_watch import Start
from optagent.tools.network import Address
from optagent.tools.server import launch


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell would ignore it
    folder, port, behaviour = Path(sys.argv[1]), sys.argv[2], sys.argv[4]
    mark = Mark(sys.argv[3], str(folder))
    stub = str(Path(__file__).with_name("stub_server.py"))
    argv = (sys.executable, stub, "--port", port, "--behaviour", behaviour)
    start = Start(
        command=Command(argv, os.environ | mark.variables(), folder),
        mark=mark,
        address=Address("127.0.0.1", int(port)),
        log=folder / "server.log",
        records=folder / "records",
        timeouts=Timeouts(stop_s=2.0),
        gpus=lambda: None,
        burst=8,
    )
    print(launch(start, lambda text: None).outcome, flush=True)


if __name__ == "__main__":
    main()
