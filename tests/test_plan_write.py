"""Writing statuses back: what changes, what does not, and that reading afterwards gives what was written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent.plan.model import Item, Plan, Status
from optagent.agent.plan.read import read_plan
from optagent.agent.plan.write import with_status

DOCUMENTS = Path(__file__).parent / "documents"


def block(*lines: str) -> str:
    return "\n".join(["# Plan", "", "## 1. Title", "", "Prose.", "", "```yaml", *lines, "```", "", "## 2. Other", ""])


@pytest.mark.parametrize(
    ("before", "status", "result", "after"),
    [
        (["id: a", "status: open"], Status.KEPT, "", ["id: a", "status: kept"]),
        (["id: a", "status: open"], Status.KEPT, "+9 %", ["id: a", "status: kept", "result: +9 %"]),
        (["id: a"], Status.KEPT, "", ["id: a", "status: kept"]),
        (["id: a", "cost: low"], Status.KEPT, "x", ["id: a", "status: kept", "result: x", "cost: low"]),
        (["status:  open  # for now", "id: a"], Status.TRYING, "", ["status:  trying  # for now", "id: a"]),
        (['id: "a"', "status: 'open'   "], Status.DEAD, "", ['id: "a"', "status: dead   "]),
        (
            ["result: old # seen", "id: a", "status: kept"],
            Status.KEPT,
            "new",
            ["result: new # seen", "id: a", "status: kept"],
        ),
        (["id: a", "status: kept", "result: old"], Status.OPEN, "", ["id: a", "status: open", 'result: ""']),
        (["id: a", "result:", "status: open"], Status.OPEN, "now", ["id: a", "result: now", "status: open"]),
        (
            ["id: a", "status: open", "result: |", "  one", "  two", "cost: c"],
            Status.KEPT,
            "x",
            ["id: a", "status: kept", "result: x", "cost: c"],
        ),
        (
            ["id: a", "status: open", "result: one", "  two", "# why", "cost: c"],
            Status.KEPT,
            "x",
            ["id: a", "status: kept", "result: x", "# why", "cost: c"],
        ),
        (["{id: a, status: open}"], Status.KEPT, "", ["{id: a, status: kept}"]),
        (["{id: a}"], Status.KEPT, "a, b", ['{status: kept, result: "a, b", id: a}']),
        (["  id: a", "  status: open"], Status.KEPT, "x", ["  id: a", "  status: kept", "  result: x"]),
        (
            ["change: {flags: {status: 1}}", "id: a"],
            Status.KEPT,
            "",
            ["change: {flags: {status: 1}}", "id: a", "status: kept"],
        ),
        (
            ["id: a", "change:", "  flags: {x: [1, 2]}", "  env:", "    Y: 0.3..1.3 # why", "status: open"],
            Status.KEPT,
            "x 2",
            [
                "id: a",
                "change:",
                "  flags: {x: [1, 2]}",
                "  env:",
                "    Y: 0.3..1.3 # why",
                "status: kept",
                "result: x 2",
            ],
        ),
        (
            ["{id: a, change: {flags: {x: 1..4}}}"],
            Status.KEPT,
            "",
            ["{status: kept, id: a, change: {flags: {x: 1..4}}}"],
        ),
        (["cost: x"], Status.KEPT, "", ["status: kept", "cost: x"]),
        (["# note", "cost: x"], Status.KEPT, "", ["# note", "status: kept", "cost: x"]),
    ],
)
def test_lines_of_a_block(before: list[str], status: Status, result: str, after: list[str]) -> None:
    item = read_plan(block(*before)).items[0].id
    assert with_status(block(*before), item, status, result) == block(*after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "## 1. A\n\nText.\n\n## 2. B\n",
            "## 1. A\n\nText.\n\n```yaml\nid: a\nstatus: kept\nresult: x\n```\n\n## 2. B\n",
        ),
        ("## 1. A\n## 2. B", "## 1. A\n\n```yaml\nid: a\nstatus: kept\nresult: x\n```\n## 2. B"),
        ("## 1. A", "## 1. A\n\n```yaml\nid: a\nstatus: kept\nresult: x\n```"),
        ("## 1. A\r\nText.\r\n", "## 1. A\r\nText.\r\n\r\n```yaml\r\nid: a\r\nstatus: kept\r\nresult: x\r\n```\r\n"),
        (
            "## 1. A\n### Sub\nText.\n\n---\n\n## 2. B\n",
            "## 1. A\n### Sub\nText.\n\n```yaml\nid: a\nstatus: kept\nresult: x\n```\n\n---\n\n## 2. B\n",
        ),
    ],
)
def test_a_headed_item_gets_a_block(before: str, after: str) -> None:
    assert with_status(before, "a", Status.KEPT, "x") == after


@pytest.mark.parametrize(
    ("before", "status", "after"),
    [
        ("- [ ] **A** – text\n- [ ] B\n", Status.KEPT, "- [x] **A** – text\n- [ ] B\n"),
        ("- [x] **A** – text\n- [ ] B\n", Status.OPEN, "- [ ] **A** – text\n- [ ] B\n"),
        ("- [ ] A\n- [ ] B\n", Status.DROPPED, "- [-] A\n- [ ] B\n"),
        ("- [ ] A\n- [ ] B\n", Status.REVERTED, "- [ ] A\n- [ ] B\n"),
        ("1. **A** – text\n2. **B**\n", Status.KEPT, "1. **A** – text\n2. **B**\n"),
        (
            "| # | Idea | Status |\n|---|---|---|\n| 1 | A | open   |\n",
            Status.KEPT,
            "| # | Idea | Status |\n|---|---|---|\n| 1 | A | kept   |\n",
        ),
        (
            "| # | Idea | Status |\n|---|---|---|\n|1|A|⬜|\n",
            Status.REVERTED,
            "| # | Idea | Status |\n|---|---|---|\n|1|A|reverted|\n",
        ),
        (
            "| # | Idea | Gain |\n|---|---|---|\n| 1 | A | 5 % |\n",
            Status.KEPT,
            "| # | Idea | Gain |\n|---|---|---|\n| 1 | A | 5 % |\n",
        ),
        (
            "| # | Idea | Result | Status |\n|---|---|---|---|\n| 1 | A |  | todo |\n",
            Status.KEPT,
            "| # | Idea | Result | Status |\n|---|---|---|---|\n| 1 | A | a \\| b | kept |\n",
        ),
    ],
)
def test_lists_and_tables(before: str, status: Status, after: str) -> None:
    assert with_status(before, "a", status, "a | b") == after


@pytest.mark.parametrize(
    ("text", "item"),
    [
        (block("id: a"), "nobody"),
        ("", "a"),
        ("no plan\n", "a"),
        ("## 1. A ✅\n", "a"),  # a status against the heading's mark would make the plan ambiguous
        (block("id: a", "status: [open"), "title"),
        (block("id: a", "status: &s open", "cost: *s"), "a"),
    ],
)
def test_what_cannot_be_written_is_left_as_it_is(text: str, item: str) -> None:
    assert with_status(text, item, Status.REVERTED, "x") == text


def test_a_contradiction_is_mended_by_writing_what_the_heading_says() -> None:
    text = "## 1. A [reverted]\n```yaml\nid: a\nstatus: kept\n```\n"
    mended = with_status(text, "a", Status.REVERTED)
    assert mended == text.replace("kept", "reverted")
    assert read_plan(mended).problems == ()


@pytest.mark.parametrize(
    "result",
    [
        "+9 %",
        "a: b",
        "x # y",
        "null",
        "yes",
        "12",
        "- a",
        "'q'",
        '"q"',
        "back\\slash",
        "| >",
        "{a}",
        "[a]",
        "&a",
        "*a",
        "!x",
        "%x",
        "@x",
        "`x`",
        "```",
        "ends:",
        "ünï ✅",
        "~",
        "=",
        "2026-01-01",
        "a\tb",
        "#",
    ],
)
def test_any_result_can_be_read_back(result: str) -> None:
    written = with_status(block("id: a"), "a", Status.KEPT, result)
    assert read_plan(written).items[0].result == " ".join(result.split())
    assert read_plan(written).problems == ()


def test_a_result_is_put_on_one_line() -> None:
    written = with_status(block("id: a"), "a", Status.KEPT, "one\n```\n## 2. Three\x00\x85four\ud800")
    assert read_plan(written).items[0].result == "one ``` ## 2. Three four"


titles = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x85\u2028\u2029"), max_size=12)
results = st.text(max_size=30)
statuses = st.sampled_from(list(Status))
extra = st.sampled_from(
    [
        "cost: a # b",
        "risk: high",
        "  # note",
        "result: before",
        "may_break: >\n  a\n  b",
        "change: {flags: {a: 1}}",
        "",
        "change: {flags: {a: [1, 2], b: 3}, env: {C: 0.3..1.3}}",
        "change:\n  flags:\n    a: 8..64 step 8  # why",
    ]
)


@st.composite
def items(draw: st.DrawFn, number: int) -> str:
    lines = [
        f"## {number}. T{number} {draw(st.sampled_from(['', 'x', 'more words  ']))}",
        draw(st.sampled_from(["", "Text.", "Text.  \n\n### Sub\n- a"])),
    ]
    if draw(st.booleans()):
        keys = [f"id: i{number}", *draw(st.lists(extra, max_size=3, unique_by=lambda line: line.split(":")[0]))]
        if draw(st.booleans()):
            keys.append(f"status: {draw(statuses)}" + draw(st.sampled_from(["", "  # why", "   "])))
        lines += ["```yaml", *draw(st.permutations(keys)), "```"]
    return "\n".join([*lines, draw(st.sampled_from(["", "\n---\n", "\nAfter."]))])


@st.composite
def plans(draw: st.DrawFn) -> str:
    text = "# Plan\n\n" + "\n".join(draw(items(n)) for n in range(1, draw(st.integers(1, 4)) + 1))
    if draw(st.booleans()):
        text = text.rstrip("\n")
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))


def without_lines(plan: Plan) -> list[Item]:
    return [replace(item, line=0) for item in plan.items]


@settings(max_examples=120, deadline=None)
@given(plans(), st.integers(0, 3), statuses, results)
def test_reading_after_writing(text: str, index: int, status: Status, result: str) -> None:
    before = read_plan(text)
    assert before.problems == ()
    item = before.items[index % len(before.items)]
    written = with_status(text, item.id, status, result)
    after = read_plan(written)
    flat = " ".join("".join(c if c.isprintable() else " " for c in result).split())
    expected = [replace(i, status=status, result=flat) if i.id == item.id else i for i in without_lines(before)]
    assert without_lines(after) == expected
    assert after.problems == ()
    assert with_status(written, item.id, status, result) == written


@settings(max_examples=80, deadline=None)
@given(plans(), st.integers(0, 3), statuses, results)
def test_other_lines_stay_as_they_are(text: str, index: int, status: Status, result: str) -> None:
    plan = read_plan(text)
    written = with_status(text, plan.items[index % len(plan.items)].id, status, result)
    old, new = text.splitlines(keepends=True), written.splitlines(keepends=True)
    kept = [line for line in old if not line.lstrip().startswith(("status:", "result:"))]
    left = iter(new)
    missing = [line for line in kept if line not in left and line + "\n" not in new and line + "\r\n" not in new]
    assert missing == []
    assert text.endswith("\n") == written.endswith("\n")


@settings(max_examples=100, deadline=None)
@given(
    st.text(max_size=80) | st.sampled_from([p.read_text(encoding="utf-8") for p in DOCUMENTS.glob("*.md")]),
    statuses,
    results,
)
def test_writing_into_any_text(text: str, status: Status, result: str) -> None:
    for item in read_plan(text).items[:3]:
        written = with_status(text, item.id, status, result)
        after = read_plan(written).item(item.id)
        assert after is not None
        assert written == text or after.status is status


def test_writing_what_is_there_changes_nothing() -> None:
    for path in DOCUMENTS.glob("plan*.md"):
        text = path.read_text(encoding="utf-8")
        for item in read_plan(text).items:
            assert with_status(text, item.id, item.status, item.result) == text


def test_writing_leaves_ranges_as_they_are() -> None:
    text = block("id: a", "change: {flags: {x: [8, 4], y: 1..3}, env: {Z: 0.5..2}}")
    before, after = read_plan(text).items[0], read_plan(with_status(text, "a", Status.KEPT, "x 8")).items[0]
    assert len(before.space) == 3
    assert replace(before, status=Status.KEPT, result="x 8") == after
