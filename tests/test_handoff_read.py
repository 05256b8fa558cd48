"""Reading handoffs: optagent's own, with what is wrong with a broken one, and what other people write."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent.errors import BadInput
from optagent.agent.handoff.free_form import MOST
from optagent.agent.handoff.model import Handoff
from optagent.agent.handoff.read import read_handoff
from optagent.agent.handoff.sections import About, about
from optagent.agent.handoff.statements import Guess, effect, guesses, retry_condition, verdict
from optagent.agent.records import Claim, DeadEnd, InFlight, Lesson, NextStep

DOCUMENTS = Path(__file__).parent / "documents"
FREE_FORM = sorted(p.name for p in DOCUMENTS.glob("*.md") if "format: optagent" not in p.read_text(encoding="utf-8"))

OWN = """\
---
format: optagent-handoff/1
id: h-3
campaign: eagle
written: 2026-11-30T08:00:00Z
objective: 'single stream: faster'
claims:
- id: c1
  text: CUDA is 12.8
  kind: version
  subject: cuda
  expected: '12.8'
  verified: true
dead_ends:
- {id: d1, title: Fusion, cause: no SM120, retry_when: cuda>=13}
---

# Handoff

Everything here is a rendering: ## 1. not read
"""


def document(name: str) -> Handoff:
    return read_handoff((DOCUMENTS / name).read_text(encoding="utf-8"), name)


@pytest.mark.parametrize("text", [OWN, OWN.replace("\n", "\r\n"), "\ufeff" + OWN, OWN.split("\n# Handoff")[0]])
def test_own_handoff(text: str) -> None:
    assert read_handoff(text) == Handoff(
        id="h-3",
        campaign="eagle",
        written="2026-11-30T08:00:00Z",
        objective="single stream: faster",
        claims=(Claim("c1", "CUDA is 12.8", "version", "cuda", "12.8", verified=True),),
        dead_ends=(DeadEnd("d1", "Fusion", "no SM120", retry_when="cuda>=13"),),
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        (
            "optagent-handoff/1",
            "optagent-handoff/2",
            2,
            "this handoff is of format optagent-handoff/2, this optagent reads",
        ),
        ("optagent-handoff/1", "'optagent-handoff/12'", 2, "Update optagent"),
        (
            "optagent-handoff/1",
            "optagent-handoff/x",
            2,
            "expected format: optagent-handoff/1, found optagent-handoff/x",
        ),
        ("optagent-handoff/1", "optagent-handoff", 2, "expected format: optagent-handoff/1"),
        ("id: h-3\n", "", 2, "id: field required"),
        ("id: h-3", "id: 3", 3, "id: input should be a valid string"),
        ("id: h-3", "id: [a]", 3, "id: input should be a valid string"),
        ("campaign: eagle", "campaing: eagle", 2, "campaign: "),
        ("objective:", "objetive:", 6, "unknown key 'objetive'"),
        ("written: 2026", "structured: false\nwritten: 2026", 5, "unknown key 'structured'"),
        ("  subject: cuda", "  subjects: cuda", 11, "unknown key 'claims.0.subjects'"),
        ("  kind: version", "  kind: [version]", 10, "claims.0.kind: input should be a valid string"),
        ("- id: c1\n  text", "- text", 8, "claims.0.id: field required"),
        ("cause: no SM120, ", "", 15, "dead_ends.0.cause: field required"),
        ("  verified: true", "  verified: perhaps", 13, "claims.0.verified: input should be a valid boolean"),
        ("objective: 'single", "objective: single", 6, "not valid YAML"),
        ("claims:\n", "claims: none\nnotes:\n", 7, "claims: input should be a valid tuple"),
        ("campaign: eagle", "campaign: eagle\ncampaign: other", 5, "the key 'campaign' is given twice"),
        ("campaign: eagle", "? [campaign]\n: eagle", 4, "not valid YAML"),
        ("retry_when: cuda>=13}\n---\n", "retry_when: cuda>=13}\n", 20, "cut off: no line of --- closes it"),
    ],
)
def test_broken_handoffs_name_the_line(old: str, new: str, line: int, said: str) -> None:
    assert old in OWN
    with pytest.raises(BadInput) as error:
        read_handoff(OWN.replace(old, new), "handoffs/3.md")
    assert said in error.value.expected
    assert (error.value.where, error.value.line) == ("handoffs/3.md", line)


@pytest.mark.parametrize("length", [3, 4, 10, 20, 28, 60, 150, 300, len(OWN) // 2])
def test_a_handoff_that_was_cut_off_is_refused(length: int) -> None:
    with pytest.raises(BadInput, match="cut off"):
        read_handoff(OWN[:length])


@pytest.mark.parametrize("text", ["", "\n", "\ufeff \n\n", "\0" * 4096])
def test_a_handoff_in_which_there_is_nothing_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="empty"):
        read_handoff(text)


def test_front_matter_of_somebody_else_is_no_error() -> None:
    handoff = document("handoff-missing.md")
    assert not handoff.structured
    assert handoff.campaign == "Handoff: serving on another card"
    assert handoff.written == "2026-05-03"


def test_a_campaign_in_prose() -> None:
    name = "handoff-campaign.md"
    handoff = document(name)
    assert handoff.written == "2026-05-03T14:30:00Z"
    assert handoff.objective == "Single-stream decode of a very large model, then the verify step."
    assert [(d.title, d.retry_when, d.evidence) for d in handoff.dead_ends] == [
        ("FlashInfer fusion", "cuda>=13", (f"{name}:27",)),
        ("Symmetric memory", "torch>=2.12", (f"{name}:28",)),
        ("Expert parallelism", None, (f"{name}:29",)),
        ("NVFP4 cache fails when CUDA 12.8 is used", None, (f"{name}:30",)),
    ]
    assert handoff.dead_ends[2].cause == "out of memory"
    assert [(a.title, a.verdict, a.effect) for a in handoff.attempts] == [
        ("graph batch 512 → 128", "keep", 0.0915),
        ("Tree all-reduce", "failed", None),
        ("n-gram drafts", "revert", None),
    ]
    assert {(c.kind, c.subject, c.expected) for c in handoff.claims} == {
        ("version", "cuda", "12.8"),
        ("version", "sglang", "0.5.8"),
        ("version", "torch", "2.9.1+cu128"),
        ("revision", "commit", "1a2b3c4d5e"),
        ("server", "port 30000", "running"),
        ("server", "pid 4711", "running"),
        ("log", "/var/log/sglang/run-12.log", ""),
        ("note", "tok/s", "82"),
        ("note", "tok/s", "89.5"),
    }
    assert [(p.experiment, p.log) for p in handoff.in_flight] == [("pending-1", "logs/run-13.log")]
    assert handoff.next_steps == (NextStep("Look at the log"), NextStep("Restore the file"))
    assert [(q.id, q.text) for q in handoff.questions] == [("q1", "May CUDA be upgraded?")]


def test_a_handoff_with_rules_and_a_table_of_work() -> None:
    handoff = document("handoff-reuse.md")
    assert handoff.written == "2026-05-04"
    assert handoff.principles == ("Matching by neighbours is off: (REUSE_KNN=0).", "New features ship off by default.")
    assert [n.text for n in handoff.next_steps] == [
        "Recompute the attention of copied chunks: the only way to both; owner's word",
        "Plug the leak: it forces lax checks; none",
    ]
    assert [d.title for d in handoff.dead_ends] == [
        "Don't turn the neighbour matching on again.",
        "Don't run more than 3 cases without",
    ]
    assert [x.text for x in handoff.lessons] == ["Cache copied under another prefix is lossy."]
    assert ("revision", "branch", "fix/pool") in {(c.kind, c.subject, c.expected) for c in handoff.claims}


def test_a_handoff_of_small_sections() -> None:
    handoff = document("handoff-team.md")
    assert handoff.written == "2026-05-02T22:30:00Z"
    assert [n.text for n in handoff.next_steps] == [
        "Try CUDA (30 min): Build it and run the benchmark.",
        "Sampling (2-4 hours): 1. Profile 2. Move it to the device",
        "Streaming: still whole answers",
    ]
    assert handoff.lessons == (
        Lesson("Always measure the release build: Lesson: debug builds say nothing.", ("handoff-team.md:27",)),
        Lesson("Load time counts once: Ignore the first request.", ("handoff-team.md:31",)),
    )
    assert [(a.title, a.verdict) for a in handoff.attempts] == [
        ("Optimised build", "unknown"),
        ("Batched sampling", "revert"),
    ]


def test_what_is_not_done_and_what_not_to_do_again() -> None:
    handoff = document("handoff-missing.md")
    assert [n.text for n in handoff.next_steps] == [
        "Image requests NOT verified: only text was",
        "Evaluation NOT run: 1651 pages",
    ]
    assert handoff.dead_ends == ()
    assert len(handoff.lessons) == 1


def test_dead_ends_in_a_bold_paragraph() -> None:
    handoff = document("plan-ideas.md")
    assert [(d.id, d.cause) for d in handoff.dead_ends] == [
        ("sparse-weights", ""),
        ("fp8-kv-cache", ""),
        ("tree-drafts", "three blockers"),
        ("prompt-lookup", "1.9x slower"),
    ]


@pytest.mark.parametrize("name", FREE_FORM)
def test_nothing_in_a_free_form_document_is_verified(name: str) -> None:
    handoff = document(name)
    assert not handoff.structured
    assert not any(r.verified for r in (*handoff.claims, *handoff.lessons, *handoff.attempts, *handoff.dead_ends))
    assert len({c.id for c in handoff.claims}) == len(handoff.claims)
    assert len({d.id for d in handoff.dead_ends}) == len(handoff.dead_ends)


@pytest.mark.parametrize(
    ("heading", "what"),
    [
        ("What was accomplished", About.TRIED),
        ("2. What is DONE (do not redo)", About.TRIED),
        ("Discoveries", About.LEARNED),
        ("Key evidence-based findings", About.LEARNED),
        ("Load-bearing gotchas", About.LEARNED),
        ("What didn't work", About.DEAD_ENDS),
        ("What Didn’t Work ❌", About.DEAD_ENDS),
        ("Failed approaches", About.DEAD_ENDS),
        ("Dead ends (do NOT retry)", About.DEAD_ENDS),
        ("8. What NOT to do", About.DEAD_ENDS),
        ("Where things stand", About.STATE),
        ("1. Current live state", About.STATE),
        ("Environment setup recipe", About.STATE),
        ("TL;DR", About.STATE),
        ("In progress / blocked", About.IN_FLIGHT),
        ("Where we left off", About.IN_FLIGHT),
        ("Next goals (ordered)", About.NEXT),
        ("What's NOT done", About.NEXT),
        ("5. Outstanding work", About.NEXT),
        ("Open questions", About.QUESTIONS),
        ("Decisions needed", About.QUESTIONS),
        ("Non-negotiable invariants", About.PRINCIPLES),
        ("Mission summary", About.OBJECTIVE),
        ("Photographs", None),
    ],
)
def test_what_a_section_is_about(heading: str, what: About | None) -> None:
    assert about(heading) is what


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("do not retry unless CUDA 13", "cuda>=13"),
        ("not before: wait until SGLang 0.5.24 is out", "sglang>=0.5.24"),
        ("works when PyTorch 2.12 comes", "torch>=2.12"),
        ("requires flashinfer >= 0.7", "flashinfer>=0.7"),
        ("needs gpu.memory_gb >= 120 to fit", "gpu.memory_gb>=120"),
        ("revisit after NCCL 2.29.1", "nccl>=2.29.1"),
        ("needs cuda ≥ 13.1", "cuda>=13.1"),
        ("crashes when CUDA 12.8 is used", None),
        ("until somebody writes a kernel", None),
        ("CUDA 13 was tried", None),
        ("unless pigs > fly", None),
    ],
)
def test_conditions_in_sentences(text: str, condition: str | None) -> None:
    assert retry_condition(text) == condition


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("decode at **82.1 tok/s**", [Guess("note", "tok/s", "82.1")]),
        ("expected 30-150 tok/s", [Guess("note")]),
        (
            "torch 2.10.0+rocm7.0; vLLM `v0.11.0`",
            [Guess("version", "torch", "2.10.0+rocm7.0"), Guess("version", "vllm", "0.11.0")],
        ),
        ("CUDA Version: 13.0", [Guess("version", "cuda", "13.0")]),
        ("HEAD `0a1b2c3`, branch: `feat/x`", [Guess("revision", "", "0a1b2c3"), Guess("revision", "branch", "feat/x")]),
        ("listening on http://127.0.0.1:8000/v1", [Guess("server", "port 8000", "running")]),
        ("pid 99 was killed", [Guess("server", "pid 99", "stopped")]),
        ("use port 8000", [Guess("note", "port 8000")]),
        ("see ~/run/server.log", [Guess("log", "~/run/server.log")]),
        ("nothing of the kind", [Guess("note")]),
        ("commit 1a2b3c4 is the fix", [Guess("revision", "commit", "1a2b3c4")]),
        ("8x NVIDIA H100 80GB HBM3, no NVLink", [Guess("gpus", "", "8 x NVIDIA H100 80GB HBM3")]),
        ("4 × RTX PRO 6000 in the box", [Guess("gpus", "", "4 x RTX PRO 6000")]),
        ("1.5 TB of disk are free", [Guess("disk", "", "1500")]),
        ("20 GB free on each GPU", [Guess("note")]),
        ("`p/a.diff` was applied", [Guess("patch", "p/a.diff", "applied")]),
        ("p/a.patch is not yet applied", [Guess("patch", "p/a.patch", "not applied")]),
        ("see p/a.diff", [Guess("path", "p/a.diff")]),
        (
            "96.4 tok/s (bench/best.jsonl)",
            [Guess("note", "tok/s", "96.4"), Guess("result", "bench/best.jsonl", "output_throughput=96.4")],
        ),
        ("weights in /data/models/kimi.", [Guess("path", "/data/models/kimi")]),
        ("POST to http://10.0.0.5/v1/chat/completions", [Guess("note")]),
    ],
)
def test_what_statements_can_be_held_against(text: str, found: list[Guess]) -> None:
    assert list(guesses(text)) == found


@pytest.mark.parametrize(
    ("text", "how", "gain"),
    [
        ("38 → 44 tok/s, kept", "keep", 0.1579),
        ("+9 %, shipped", "keep", 0.09),
        ("slower than before: −3.5 %", "revert", -0.035),
        ("server died", "failed", None),
        ("no change", "inconclusive", None),
        ("✅ done", "keep", None),
        ("wrote a script", None, None),
    ],
)
def test_verdicts_and_effects(text: str, how: str | None, gain: float | None) -> None:
    assert (verdict(text), effect(text)) == (how, gain)


def read_or_refuse(text: str) -> Handoff | BadInput:
    try:
        return read_handoff(text)
    except BadInput as error:
        return error


def test_a_pending_launch_keeps_its_log() -> None:
    handoff = read_handoff("## In progress\n- Launch of the bundle, log at logs/a-1.log\n", "h.md")
    assert handoff.in_flight == (
        InFlight("pending-1", "Launch of the bundle, log at logs/a-1.log", log="logs/a-1.log", evidence=("h.md:2",)),
    )


def test_steps_that_are_ticked_off_are_no_next_steps() -> None:
    assert read_handoff("## Next steps\n- [x] one\n- [ ] two\n- ✅ three\n").next_steps == (NextStep("two"),)


def test_everything_is_bounded() -> None:
    line = "- port 1234 is running, CUDA 12.8, `0a1b2c3d` and " + "x" * 5_000
    text = "".join(
        f"## {h}\n{chr(10).join([line] * 400)}\n"
        for h in ("Current state", "Dead ends", "Lessons", "Next steps", "Results")
    )
    handoff = read_handoff(text)
    kinds = (handoff.claims, handoff.dead_ends, handoff.lessons, handoff.next_steps, handoff.attempts)
    assert max(len(k) for k in kinds) <= MOST
    assert all(len(c.text) <= 1_300 for c in handoff.claims)
    assert len(repr(handoff)) < 1_500_000


pieces = st.sampled_from(
    [
        "---",
        "format: optagent-handoff/1",
        "# T",
        "## Dead ends",
        "## Next steps",
        "### a",
        "- b — c",
        "1. d",
        "| x | y |",
        "|---|---|",
        "```",
        "**Dead ends:** a, b, c",
        "<!--",
        "id: x",
        "",
        "text",
        "2026-05-03T25:99+99:99 date",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(pieces | st.text(max_size=20), max_size=25))
def test_any_text_is_read_or_refused(lines: list[str]) -> None:
    text = "\n".join(lines)
    read = read_or_refuse(text)
    if isinstance(read, BadInput):
        assert text.startswith("---") or not text.strip("\ufeff \t\r\n\0")
        assert 1 <= (read.line or 1) <= text.count("\n") + 1
    else:
        assert read == read_or_refuse(text)
