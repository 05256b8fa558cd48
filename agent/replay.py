"""A recorded session run again, against the recording in place of the world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optagent.agent.config import config_from
from optagent.agent.errors import BadInput, Diverged
from optagent.agent.ledger import Ledger
from optagent.agent.session import LedgerJournal, Narrator, Session
from optagent.agent.sitting import Ended, run_sitting
from optagent.tools.errors import RecordingEnds, ReplayDiverged, ReplayStopped
from optagent.tools.journal_store import Draft, Entry, MemoryJournal
from optagent.tools.recording import RecordingToolbox
from optagent.tools.replaying import ReplayToolbox
from optagent.tools.stub import Recording


@dataclass(frozen=True)
class Replayed:
    """What came of a replay: `calls` were answered, `renamed` of them asked the same under another name. `ended` is None
    where the recording of a killed sitting ends, or where the replay was stopped; `session` is left as it was there."""

    session: Session
    calls: int
    renamed: int
    ended: Ended | None = None

    @property
    def steps(self) -> int:
        return self.ended.steps if self.ended else self.session.ledger.steps


def replay(recording: Recording, narrator: Narrator, until: int | None = None) -> Replayed:
    """Run the recorded session again, or its first `until` steps. Raises ReplayDiverged, which says where, at the first call
    that differs, Diverged where it ended otherwise, BadInput when it has fewer steps."""
    toolbox = ReplayToolbox(recording)
    inner = recorded_journal(recording)
    journal = LedgerJournal(inner) if until is None else _UntilStep(inner, until)
    session = Session(
        config_from(recording.config, recording.name, 1), RecordingToolbox(toolbox, journal), journal, narrator
    )
    session.step_limit = recording.started.get("steps")
    ended = None
    try:
        ended = run_sitting(session, None)
    except ReplayStopped:
        return Replayed(session, toolbox.answered, toolbox.renamed)
    except RecordingEnds:
        pass
    except ReplayDiverged as error:
        error.where = where(session)
        raise
    done = Replayed(session, toolbox.answered, toolbox.renamed, ended)
    if until is not None and done.steps < until:
        raise BadInput("--until", f"{recording.name} has {done.steps} steps, not {until}")
    if left := toolbox.unasked():
        raise Diverged(left)
    if ended is not None:
        _compare_end(recording, ended)
    return done


def where(session: Session) -> str:
    """The step, node and experiment that a session is in, as in "step 2, in launch, E0002 (NCCL_ALGO=Tree)"."""
    experiment = session.ledger.current()
    step = f"step {session.ledger.steps}" if experiment else f"after step {session.ledger.steps}"
    parts = [step, *([f"in {session.node}"] if session.node else [])]
    return ", ".join([*parts, *([f"{experiment.id} ({experiment.title[:60]})"] if experiment else [])])


def recorded_journal(recording: Recording) -> MemoryJournal:
    """The journal that a recording begins with. Raises BadInput when an entry is not what its kind needs."""
    memory, ledger = MemoryJournal(), Ledger()
    for number, entry in enumerate(recording.journal, 1):
        try:
            ledger.apply(memory.append(entry["kind"], entry["body"], entry.get("key"), entry.get("at")))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            what = f"has nothing under {error}" if isinstance(error, KeyError) else f"cannot be used: {error}"
            raise BadInput(recording.name, f"entry {number} of `journal` ({entry['kind']}) {what}", 1) from None
    return memory


class _UntilStep(LedgerJournal):
    """Stops the replay where it is decided to begin the step after the last one that is wanted."""

    def __init__(self, inner: MemoryJournal, steps: int) -> None:
        super().__init__(inner)
        self._left = steps

    def append_all(self, drafts: Sequence[Draft]) -> list[Entry]:
        if any(d.kind == "decision" and d.body["verb"] == "continue" for d in drafts):
            if self._left == 0:
                raise ReplayStopped("as many steps were replayed as were asked for")
            self._left -= 1
        return super().append_all(drafts)


def _compare_end(recording: Recording, ended: Ended) -> None:
    recorded = recording.end
    for key, now in (("decision", ended.verb.value), ("reason", ended.reason), ("steps", ended.steps)):
        if recorded and recorded.get(key) != now:
            raise Diverged(f"the session ended with {key} {recorded.get(key)!r}, the replay with {now!r}")
