"""`python -m optagent.tools.simulator`: one launch of the simulated server, from its arguments to its end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from optagent.tools.simulator import startup
from optagent.tools.simulator.batching import BatchSeen, OutOfRoom
from optagent.tools.simulator.clock import VirtualClock
from optagent.tools.simulator.failures import Launch, first_failure
from optagent.tools.simulator.flags import parse
from optagent.tools.simulator.log import Log, batch_line
from optagent.tools.simulator.memory import plan_memory
from optagent.tools.simulator.resolve import resolve
from optagent.tools.simulator.surroundings import CLOCK, SPEED, Surroundings, look_around


def main(arguments: Sequence[str], env: Mapping[str, str]) -> None:
    around = look_around(env)
    if not {"-h", "--help"} & set(arguments):
        announce(around)
    fields = parse(arguments, around.versions["sglang"])
    speed = float(env.get(SPEED) or around.scenario.speed)
    start = datetime.fromisoformat(env[CLOCK]) if env.get(CLOCK) else datetime.now()
    clock = VirtualClock(start, speed)
    plan = plan_launch(fields, around)
    Process(plan, clock, Log(clock), speed).run()


def announce(around: Surroundings) -> None:
    sys.stderr.write(
        f"This deployment is simulated: scenario {around.scenario.name}, times from a cost model. No GPU, no model "
        "and no SGLang is involved.\n"
    )
    sys.stderr.flush()


def plan_launch(fields: dict[str, Any], around: Surroundings) -> startup.Plan:
    """Everything about the launch that is settled before it begins, its failure included."""
    setup = resolve(fields, around)
    taken = 0.0
    if around.world:
        from optagent.tools.simulator.holders import taken_gb

        taken = taken_gb(around.world)
    scenario = around.scenario
    memory = plan_memory(scenario.hardware, scenario.model, scenario.costs, scenario.faults, setup, taken)
    failure = first_failure(Launch(fields, around, memory))
    return startup.Plan(fields, setup, around, memory, failure)


class Process:
    """Plays the script of a launch, then serves until it is told to stop."""

    def __init__(self, plan: startup.Plan, clock: VirtualClock, log: Log, speed: float) -> None:
        self.plan = plan
        self.clock = clock
        self.log = log
        self.speed = speed
        self.note: Path | None = None
        self.server: Any = None

    def run(self) -> None:
        signal.signal(signal.SIGTERM, lambda number, frame: self._end())
        signal.signal(signal.SIGINT, lambda number, frame: self._end())
        self._hold(self.plan.around.scenario.hardware.context_gb)
        for line in startup.write_script(self.plan).lines():
            self.clock.advance_to(line.at_s)
            if line.raw:
                self.log.raw(line.text)
            elif line.text:
                self.log.line(line.text, line.rank)
            self._act(line.action)
        wait_for_ever()

    def _act(self, action: str | None) -> None:
        if action == startup.LOADED:
            self._hold(self.plan.around.scenario.hardware.memory_gb - self.plan.memory.after_pool_gb)
        elif action == startup.BIND:
            self._bind()
        elif action == startup.READY:
            self.server.front.ready = True
        elif action == startup.DIE:
            self._kill()
        elif action == startup.HANG:
            wait_for_ever()

    def _bind(self) -> None:
        """Open the port. When it is taken, say so as uvicorn does and live on without serving, as SGLang does."""
        from optagent.tools.simulator.http_api import Front, Handler, HttpServer

        memory = self.plan.memory
        self._hold(self.plan.around.scenario.hardware.memory_gb - memory.after_capture_gb)
        host, port = self.plan.fields["host"], self.plan.fields["port"]
        try:
            self.server = HttpServer((host, port), Handler)
        except OSError as error:
            self.log.raw(
                f"[{self.clock.stamp()}] ERROR:    [Errno {error.errno}] error while attempting to bind on address "
                f"({host!r}, {port}): {(error.strerror or '').lower()}\n"
            )
            self.log.line("INFO:     Waiting for application shutdown.")
            self.log.line("INFO:     Application shutdown complete.")
            wait_for_ever()
        self.server.front = Front(self._service(), self.log, self.speed, self._out_of_memory)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.log.line(f"INFO:     Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)")

    def _service(self) -> Any:
        from optagent.tools.simulator.serving import Service

        plan = self.plan
        return Service(
            around=plan.around,
            setup=plan.setup,
            memory=plan.memory,
            fields=plan.fields,
            advance_clock=self.clock.advance_to,
            now_s=self._now_s,
            report=self._report,
        )

    def _now_s(self) -> float:
        self.clock.rest()
        return self.clock.elapsed_s

    def _report(self, seen: BatchSeen) -> None:
        how = self.plan.setup.speculation
        text = batch_line(self.plan.words, seen, self.plan.memory.kv_tokens, how.verify_tokens if how else 1)
        self.log.line(text, 0, seen.at_s)

    def _hold(self, gb: float) -> None:
        world = self.plan.around.world
        if world is None:
            return
        from optagent.tools.simulator.holders import hold

        self.note = hold(world, gb, min(self._gpus, self.plan.around.scenario.hardware.count))

    @property
    def _gpus(self) -> int:
        return self.plan.setup.tp_size * self.plan.setup.replicas

    def _out_of_memory(self, why: OutOfRoom) -> None:
        """A rank dies while it serves: its traceback, and the parent that takes the tree down."""
        for text, rank in startup.last_words(self.plan, why.tokens):
            self.log.line(text, rank)
        self._kill()

    def _end(self) -> None:
        """Stop in order, as far as SGLang does: its parent kills its own tree in the end, itself included."""
        self.log.line("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        self.log.line("Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[].")
        self._kill()

    def _kill(self) -> None:
        """End the way SGLang's process tree ends: by signal 9, with nothing left to clean up."""
        if self.note is not None:
            self.note.unlink(missing_ok=True)
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for_ever() -> None:
    """Until a signal ends the process."""
    while True:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:], dict(os.environ))
