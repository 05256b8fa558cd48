"""A handoff is of bounded size, whatever the campaign has behind it, and says what it leaves out and where that is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent.change import Change
from optagent.agent.config import CampaignConfig
from optagent.agent.hand_off import compose, whole
from optagent.agent.handoff.bounds import LIMIT, bounded
from optagent.agent.handoff.model import Handoff
from optagent.agent.handoff.read import read_handoff
from optagent.agent.handoff.render import render_handoff
from optagent.agent.jsonable import to_body
from optagent.agent.plan.model import Item
from optagent.agent.records import (
    Attempt,
    Baseline,
    DeadEnd,
    InFlight,
    Lesson,
    Measurement,
    NextStep,
    Option,
    Part,
    Question,
)
from optagent.agent.session import LedgerJournal, Session
from optagent.agent.standing import Kind, Standing
from optagent.tools.calls.base import Request
from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.world import Gpu, World
from optagent.tools.journal_store import Draft, MemoryJournal
from optagent.tools.routed import R, RoutedToolbox

BASE = Configuration("default", {"model-path": "/models/k", "tp-size": 8}, {"NCCL_ALGO": "Ring"}, {"s.py": "x = 1\n"})
GPUS = [Gpu(index=n, name="NVIDIA B200", memory_total_gb=180, memory_used_gb=1) for n in range(8)]
WORLD = World(
    gpus=GPUS, versions={"cuda": "13.0", "sglang": "0.5.9"}, host="n1", user="u", folder="/c", files={"s.py": "a"}
)
OPEN = Item("open-item", "An open item", 1, change=Change(flags={"page-size": 64}))
STANDINGS = [Standing(OPEN, Kind.RUNNABLE, "nothing stands in its way")]


class Hands(RoutedToolbox):
    """Answers with defaults, and at a fixed time."""

    def call(self, tool: str, request: Request, answers_with: type[R]) -> R:
        return answers_with.model_validate({"now": "2026-11-30T08:00:00Z"} if tool == "clock" else {})


class Nobody:
    def tell(self, what: str, text: str) -> None: ...
    def now(self, text: str) -> None: ...
    def detail(self, text: str) -> None: ...


def campaign(steps: int, words: str = "slower in every pair, as the profile let one expect") -> Session:
    """A campaign of so many experiments: every third is a dead end, every tenth was kept; a question every fiftieth."""
    drafts = [Draft("sitting", {"id": "S001"}), Draft("baseline", to_body(Baseline(
        BASE, Measurement("output_throughput", 100.0, 99.0, 101.0, 4, evidence=("E0001", ".optagent/runs/a.json"), verified=True)
    )))]  # fmt: skip
    for n in range(1, steps + 1):
        drafts += experiment(n, words)
        if n % 50 == 0:
            asked = Question(
                f"Q{n}", "needs-approval", f"May item {n} be tried? {words}", words, (Option("yes", words),)
            )
            drafts.append(Draft("question", to_body(asked)))
    journal = MemoryJournal()
    journal.append_all(drafts)
    return Session(CampaignConfig(name="long"), Hands(), LedgerJournal(journal), Nobody())


def experiment(n: int, words: str) -> list[Draft]:
    name = f"E{n:04d}"
    change: dict[str, Any] = {"flags": {"page-size" if n == 3 else f"flag-{n % 97}": n}}
    began: dict[str, Any] = {
        "id": name,
        "kind": "item",
        "title": f"Item {n}: {words}",
        "base": to_body(BASE),
        "item": f"i{n}",
    }
    verdict = "keep" if n % 10 == 0 else "revert"
    drafts = [
        Draft("experiment", began | {"change": change}),
        Draft("verdict", {"experiment": name, "verdict": verdict, "because": words, "effect": 0.01 * (n % 7 - 3)}),
    ]
    if n % 3 == 0:
        end = DeadEnd(
            f"i{n}", f"Item {n}", words, "slow", f"i{n}", Change(change["flags"]), "cuda>=14", "default", (name,), True
        )
        drafts.append(Draft("dead-end", to_body(end)))
    return drafts


@pytest.mark.parametrize("steps", [0, 1, 50, 500, 5000])
def test_a_handoff_stays_within_its_size_however_long_the_campaign(steps: int) -> None:
    handoff = compose(campaign(steps), WORLD, STANDINGS, "tested")
    text = render_handoff(handoff)
    assert len(text.encode()) <= LIMIT
    assert read_handoff(text) == handoff
    assert handoff.baseline is not None
    assert handoff.baseline.configuration == BASE
    assert handoff.next_steps
    shown = {
        "experiments": len(handoff.attempts),
        "dead ends": len(handoff.dead_ends),
        "open questions": len(handoff.questions),
    }
    there = {"experiments": steps, "dead ends": steps // 3 - steps // 30, "open questions": steps // 50}
    left = {gone.what: gone.count for gone in handoff.left_out}
    assert {what: shown[what] + left.get(what, 0) for what in there} == there | {
        "dead ends": shown["dead ends"] + left.get("dead ends", 0)
    }


def test_what_is_left_out_is_in_the_full_one() -> None:
    session = campaign(500)
    short, everything = compose(session, WORLD, STANDINGS, "t"), whole(session, WORLD, STANDINGS, "t")
    assert len(everything.attempts) == 500
    assert everything.dead_ends == tuple(session.ledger.dead_ends.values())
    assert not everything.left_out
    assert {e.experiment for e in short.attempts} < {e.experiment for e in everything.attempts}
    for gone in short.left_out:
        assert "optagent handoff --full" in gone.where
        assert f"journal up to entry {session.ledger.seq}" in gone.where
    counted = {gone.what: gone.count for gone in short.left_out}
    assert counted["dead ends"] == len(everything.dead_ends) - len(short.dead_ends)
    assert counted["experiments"] == 500 - len(short.attempts)


def test_the_latest_experiments_stay_and_the_dead_ends_that_matter_for_what_is_open() -> None:
    handoff = compose(campaign(2000), WORLD, STANDINGS, "t")
    assert [a.experiment for a in handoff.attempts] == [f"E{n:04d}" for n in range(2001 - len(handoff.attempts), 2001)]
    assert len(handoff.attempts) >= 8, "the latest"
    ends = [d.id for d in handoff.dead_ends]
    assert len(ends) >= 8
    assert ends[0] == "i3", "it sets what an open item sets, and is the oldest of all"
    assert ends[1:] == sorted(ends[1:], key=lambda name: int(name[1:]))
    assert ends[-1] == "i1998"


def test_a_short_campaign_leaves_nothing_out() -> None:
    handoff = compose(campaign(9), WORLD, STANDINGS, "t")
    assert handoff.left_out == ()
    assert len(handoff.attempts) == 9
    assert "Not in here" not in render_handoff(handoff)


def test_what_is_left_out_is_told_to_people() -> None:
    text = render_handoff(compose(campaign(300), WORLD, STANDINGS, "t"))
    assert "## Not in here" in text
    assert "experiments: journal up to entry" in text


def test_environment_files_stand_once_where_both_baselines_have_the_same() -> None:
    held = Configuration("default", files={"sitecustomize.py": "MARK = 'once'\n" * 20})
    handoff = Handoff("h", "c", "2026-11-30T08:00:00Z", first_baseline=Baseline(held), baseline=Baseline(held))
    text = render_handoff(handoff)
    assert text.count("MARK") == 20
    assert read_handoff(text) == handoff


@pytest.mark.parametrize("kind", ["files", "env", "flags"])
def test_a_value_that_is_larger_than_a_handoff_is_left_out_and_named(kind: str) -> None:
    held = replace(BASE, **{kind: {"small": "1", "large": "x" * 50_000}})  # type: ignore[arg-type]
    handoff = bounded(Handoff("h", "c", "2026-11-30T08:00:00Z", baseline=Baseline(held), first_baseline=Baseline(held)))
    text = render_handoff(handoff)
    assert len(text.encode()) <= LIMIT
    assert handoff.baseline is not None
    assert getattr(handoff.baseline.configuration, kind) == {"small": "1"}
    assert [left.what.partition(":")[0] for left in handoff.left_out] == ["baseline", "first baseline"]
    assert all(left.what.endswith(" large") for left in handoff.left_out)


@pytest.mark.parametrize("sign", ["&", "`", "\u2028", "\x00", "字", "😀", "\n", "|"])
def test_text_that_grows_when_it_is_written_stays_within_the_size_too(sign: str) -> None:
    words = sign * 700
    handoff = bounded(replace(
        compose(campaign(300, words), WORLD, STANDINGS, words), objective=words, principles=(words,) * 30, notes=words,
        lessons=(Lesson(words, (words,)),) * 50, next_steps=(NextStep(words, "open-item"),) * 50,
        in_flight=(InFlight("E1", words, (Part(words, change=Change(files={"a": words})),) * 20, "a.log", words),) * 30,
    ))  # fmt: skip
    text = render_handoff(handoff)
    assert len(text.encode()) <= LIMIT
    assert read_handoff(text) == handoff


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=400)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 120), texts, st.lists(st.builds(Attempt, texts, texts, texts, st.none() | texts, texts), max_size=30),
    st.lists(st.builds(DeadEnd, texts, texts, texts, retry_when=st.none() | texts), max_size=30), st.integers(2_500, 20_000),
)  # fmt: skip
def test_any_ledger_gives_a_handoff_of_bounded_size_that_reads_back(
    steps: int, words: str, attempts: list[Attempt], ends: list[DeadEnd], limit: int
) -> None:
    session = campaign(steps, words)
    session.ledger.attempts += attempts
    session.ledger.dead_ends |= {str(n): end for n, end in enumerate(ends)}
    handoff = bounded(whole(session, WORLD, STANDINGS, words), limit=limit)
    text = render_handoff(handoff)
    assert len(text.encode()) <= limit
    assert read_handoff(text) == handoff
    assert render_handoff(read_handoff(text)) == text
    composed = compose(session, WORLD, STANDINGS, words)
    assert len(render_handoff(composed).encode()) <= LIMIT
