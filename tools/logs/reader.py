"""Reads a server's log as it grows: how far the launch is, and if it failed, the first cause.

The engine knows no particular message: those stand in `signatures`, the wording of a start in `startup`. Whatever bytes
come, a reading comes out, and where the log does not tell, the reading says so.
"""

from __future__ import annotations

import re
from datetime import datetime

from optagent.tools.calls.logs import LogReading
from optagent.tools.logs.candidates import Candidates
from optagent.tools.logs.cutting import Line, LineCutter, clean
from optagent.tools.logs.matching import Matcher
from optagent.tools.logs.reading import reading_of
from optagent.tools.logs.recognising import written_by_a_server
from optagent.tools.logs.run import Run
from optagent.tools.logs.shapes import Shape, Shapes
from optagent.tools.logs.signatures import MISLEADING
from optagent.tools.logs.silence import allowed_silence_s, silence_of
from optagent.tools.logs.startup import LOOSE_BAR, RUN_BEGINS, SETTINGS, phase_opened, read_bar
from optagent.tools.logs.unwrapping import Message, Unwrapper

PIECE_BYTES = 120 * 1024
"""Larger pieces were slower: their copies come from the operating system one by one (malloc maps them from 128 kB on)."""
SKIM_BYTES = 16 * 1024
TAIL_LINES = 6
"""Of a block in which nothing needs reading, only so many last lines are looked at."""

KV_TOKENS = re.compile(r"max_total_num_tokens=(\d{1,15})|Cache is allocated.*#tokens: (\d{1,15})")
KV_GB = re.compile(r"Cache is allocated.*?\b(?:K size: (\d{1,6}\.\d{1,4}) GB, V|KV) size: (\d{1,6}\.\d{1,4}) ?GB")
WEIGHTS_GB = re.compile(r"Load weight end.*mem usage=(\d{1,6}\.\d{1,4}) ?GB")
CONTEXT = re.compile(r"\bcontext_len=(\d{1,15})")
FREE_GPU = re.compile(r"available_gpu_mem=(\d{1,6}(?:\.\d{1,4})?)")
CAPPED = re.compile(r"max_running_requests is capped|(?:limited|capped|reduced) (?:by|to) .*(?:KV|kv|mamba|memory)")
HEALTH = "Health check failed"
ANSWERED = b'" 200'
LONGEST_SAID = 8000


class LogReader:
    """Takes a log piece by piece; `reading` may be asked for at any time."""

    def __init__(self) -> None:
        self._cutter = LineCutter()
        self._number = 0
        self._shapes = Shapes()
        self._unwrapper = Unwrapper()
        self._matcher = Matcher()
        self._run = self._new_run()
        self._skipped: tuple[int, bytes] | None = None
        self._recognised = False
        self._blank = True
        self._binary = False

    def feed(self, data: bytes) -> None:
        for block in self._cutter.feed(data):
            self._take_block(block)

    def finish(self) -> None:
        """Take what stands behind the last newline as a line; nothing is to follow."""
        for block in self._cutter.finish():
            self._take_block(block)

    def reading(self, alive: bool | None, now: datetime | None = None, silent_s: float | None = None) -> LogReading:
        """Where the last run stands, given whether its process still lives.

        It is called hung only when it is known how long it has been silent: from `now`, the time on the log's own clock,
        or from `silent_s`, for how long the log has not grown.
        """
        self._look_back()
        unfinished = clean(self._cutter.unfinished())
        if LOOSE_BAR.search(unfinished):
            self._run.see_bar(read_bar(unfinished), unfinished)
        if silent_s is None and now is not None:
            silent_s = silence_of(self._run, now)
        return reading_of(self._run, alive, silent_s)

    @property
    def blank(self) -> bool:
        """Whether nothing has been written yet."""
        return self._blank and not self._cutter.unfinished().strip()

    @property
    def recognised(self) -> bool:
        """Whether anything in it is what an SGLang server writes, or a failure that is known."""
        if self._recognised or written_by_a_server(self._cutter.unfinished()):
            return True
        run = self._run
        return not self._binary and bool(run.dead or run.stopped or run.candidates.findings())

    @property
    def http_port_taken(self) -> bool:
        """Whether the server found its HTTP port taken. Its process may well live on after that."""
        findings = self._run.candidates.findings()
        return any(f.signature.kind == "port-in-use" and "Errno 98" in f.text for f in findings)

    @property
    def allowed_silence_s(self) -> float:
        """How long this launch may now be silent before it is taken for hung."""
        return allowed_silence_s(self._run)

    def _new_run(self) -> Run:
        return Run(Candidates(self._matcher))

    def _take_block(self, block: bytes) -> None:
        if not self._recognised:
            self._recognise(block)
        if len(block) >= SKIM_BYTES and not self._run.candidates.in_message:
            count = self._shapes.routine_lines(block)
            if count is not None:
                tail = block.rsplit(b"\n", TAIL_LINES)[1:]
                self._number += count - len(tail)
                self._take_lines(tail)
                return
        self._take_lines(block.split(b"\n"))

    def _recognise(self, block: bytes) -> None:
        self._recognised = written_by_a_server(block)
        self._blank = self._blank and not block.strip()
        self._binary = self._binary or b"\0" in block

    def _take_lines(self, lines: list[bytes]) -> None:
        for raw in lines:
            self._number += 1
            self._take_line(self._number, raw)

    def _take_line(self, number: int, raw: bytes) -> None:
        run, shape = self._run, self._shapes.of(raw)
        if shape is Shape.READ or run.candidates.in_message:
            self._read(number, raw)
        elif raw:
            self._skipped = (number, raw)
            if shape is Shape.DECODE:
                run.serving.take_decode(number, raw)
            elif shape is Shape.PREFILL:
                run.serving.take_batch(number, raw)
            elif ANSWERED in raw:
                run.serving.answered_since += 1

    def _read(self, number: int, raw: bytes) -> None:
        self._look_back()
        message = self._unwrapper.unwrap(Line(number, clean(raw)))
        text = message.text
        if SETTINGS.match(text):
            self._take_settings(text)
        elif (self._run.dead or self._run.stopped) and RUN_BEGINS.search(text):
            self._run = self._new_run()
        run = self._run
        run.take_stamp(message.stamp)
        if not text:
            return
        run.last_lines.append(message.line)
        if text[0] not in " \t" and not run.settings_seen:
            run.arguments.take_shell(text)
        if not run.candidates.in_message or message.stamp is not None:
            self._note_progress(message)
        self._note_trouble(message)

    def _look_back(self) -> None:
        """Of the lines that were passed over, the last one still tells the time, and what was going on."""
        if self._skipped is not None:
            number, raw = self._skipped
            self._skipped = None
            message = self._unwrapper.unwrap(Line(number, clean(raw)))
            self._run.take_stamp(message.stamp)
            self._run.last_lines.append(message.line)

    def _take_settings(self, text: str) -> None:
        """The settings open a run, unless what stood before was only its own beginning."""
        if self._run.settings_seen and (self._run.phases or self._run.dead or self._run.stopped):
            self._run = self._new_run()
        self._run.settings_seen = True
        self._run.arguments.take_settings(text)

    def _note_progress(self, message: Message) -> None:
        run, text = self._run, message.text[-LONGEST_SAID:]
        phase = phase_opened(text)
        if phase is not None:
            sender = "" if phase in ("warmup", "serving") else message.rank
            run.enter(phase, sender, text)
        if LOOSE_BAR.search(text) and ((bar := read_bar(text)) is not None or phase is None):
            run.see_bar(bar, text)
        if "tokens" in text and (tokens := KV_TOKENS.search(text)):
            run.kv_tokens, run.kv_line = int(tokens.group(1) or tokens.group(2)), message.line
            if size := KV_GB.search(text):
                run.kv_gb = max(run.kv_gb or 0.0, float(size.group(1) or 0.0) + float(size.group(2)))
        if "Load weight end" in text and (weights := WEIGHTS_GB.search(text)):
            run.weights_gb = max(run.weights_gb or 0.0, float(weights.group(1)))
        if "context_len=" in text and (context := CONTEXT.search(text)):
            run.context_len = int(context.group(1))
        if free := FREE_GPU.search(text):
            run.free_gpu_gb = float(free.group(1))
        if CAPPED.search(text):
            run.capped_line = message.line

    def _note_trouble(self, message: Message) -> None:
        run, text = self._run, message.text
        if text.startswith(HEALTH):
            run.serving.take_health_failure(message.line)
        if len(text) < LONGEST_SAID and SETTINGS.match(text) is None:
            ends = self._matcher.ends(text)
            run.stopped = run.stopped or (ends.stopped and not run.dead)
            run.dead = run.dead or ends.dead
            for words, said in MISLEADING:
                if words in text:
                    run.misleading.setdefault(said, message.line)
            run.candidates.take(message, run.phase_of(message.rank), run.last_stamp)
