"""What the log has told so far about one run of the server."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime

from optagent.tools.calls.logs import Phase
from optagent.tools.logs.candidates import Candidates
from optagent.tools.logs.cutting import Line
from optagent.tools.logs.launch_arguments import LaunchArguments
from optagent.tools.logs.serving import Serving
from optagent.tools.logs.startup import COMPILING, Bar, least_advanced


@dataclass
class Run:
    candidates: Candidates
    arguments: LaunchArguments = field(default_factory=LaunchArguments)
    settings_seen: bool = False
    phases: dict[str, Phase] = field(default_factory=dict)
    serving: Serving = field(default_factory=Serving)

    ready: bool = False
    stopped: bool = False
    dead: bool = False
    """A line says that the server cannot go on."""

    last_lines: deque[Line] = field(default_factory=lambda: deque(maxlen=4))
    last_stamp: datetime | None = None
    last_progress: str = ""
    compiling: bool = False
    bar: Bar | None = None
    bar_began: datetime | None = None

    kv_tokens: int | None = None
    kv_line: Line | None = None
    kv_gb: float | None = None
    weights_gb: float | None = None
    """Both on the GPU that has the most of it."""
    context_len: int | None = None
    free_gpu_gb: float | None = None
    capped_line: Line | None = None

    misleading: dict[str, Line] = field(default_factory=dict)
    """What not to believe, and the first line that says it."""

    @property
    def phase(self) -> Phase:
        return least_advanced(self.phases)

    def phase_of(self, rank: str) -> Phase:
        """Where `rank` is. A sender that nothing is known of is taken for the least advanced one."""
        parent = self.phases.get("", "arguments")
        if parent in ("warmup", "serving"):
            return parent
        if rank in self.phases:
            return self.phases[rank]
        alike = [r for r in self.phases if rank and rank in r.split(" ")]
        return self.phases[alike[0]] if alike else self.phase

    def take_stamp(self, stamp: datetime | None) -> None:
        if stamp is not None:
            self.last_stamp = stamp

    def enter(self, phase: Phase, sender: str, text: str) -> None:
        """`sender` shows that it is in `phase`: whatever it complained of before was not its end."""
        self.phases[sender] = phase
        self.last_progress = text[:160]
        self.bar, self.compiling = None, COMPILING.search(text) is not None
        if not self.dead:
            self.candidates.forget(sender)
        if phase == "serving" and not self.dead:
            self.ready = True
            self.candidates = Candidates(self.candidates.matcher)

    def see_bar(self, bar: Bar | None, text: str) -> None:
        """A bar moved. It began when the last stamped line was written, as far as anybody knows."""
        self.last_progress = text[-160:]
        if bar is None:
            return
        if self.bar is None or (bar.elapsed_s or 0) < (self.bar.elapsed_s or 0):
            self.bar_began = self.last_stamp
        self.bar = bar
