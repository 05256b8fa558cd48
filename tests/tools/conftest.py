"""Real processes and sockets for the tests of the hands; whatever a test started is gone when it ends."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from optagent.tools import processes
from optagent.tools.commands import Command, Mark
from optagent.tools.deployment import Timeouts
from optagent.tools.launch_watch import Start
from optagent.tools.network import Address

FAKES = Path(__file__).parent / "fakes"


@dataclass
class Stubs:
    """Makes launches of the stub server below `folder`, and knows all their marks."""

    folder: Path
    port: int
    marks: list[Mark] = field(default_factory=list)

    def new_mark(self) -> Mark:
        self.marks.append(Mark(f"L{len(self.marks)}", str(self.folder)))
        return self.marks[-1]

    def start(
        self,
        behaviour: str,
        mark: Mark | None = None,
        silence_s: float = 30.0,
        stop_s: float = 5.0,
        request_s: float = 10.0,
    ) -> Start:
        mark = mark or self.new_mark()
        stub = str(FAKES / "stub_server.py")
        argv = (sys.executable, stub, "--port", str(self.port), "--behaviour", behaviour)
        return Start(
            command=Command(argv, os.environ | mark.variables(), self.folder),
            mark=mark,
            address=Address("127.0.0.1", self.port),
            log=self.folder / "server.log",
            records=self.folder / "records",
            timeouts=Timeouts(launch_silence_s=silence_s, stop_s=stop_s, request_s=request_s),
            gpus=lambda: None,
            burst=8,
        )

    def running(self, mark: Mark) -> list[int]:
        return [process.id.pid for process in processes.marked(mark).living()]


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def stubs(tmp_path: Path, free_port: int) -> Iterator[Stubs]:
    made = Stubs(tmp_path, free_port)
    yield made
    for mark in made.marks:
        assert processes.stop(processes.marked(mark), grace_s=0.0) == []


@pytest.fixture
def quiet() -> Callable[[str], None]:
    return lambda text: None
