"""Reading plans: the structured form with its complaints, and the plans that people write by hand."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optagent.agent.change import Change
from optagent.agent.jsonable import from_body, to_body
from optagent.agent.plan.gains import find_gain, read_gain
from optagent.agent.plan.headings import Kind, read_heading
from optagent.agent.plan.model import Item, Plan, Problem, Risk, Status
from optagent.agent.plan.read import read_plan
from optagent.agent.search.space import Axis

DOCUMENTS = Path(__file__).parent / "documents"

PLAN = """\
# Faster single-stream decoding

What has been agreed with the owner.

## 1. Smaller graph buffers

Buffers of 512 batches take memory that the cache could use.

### Why it may work

They are captured at start.

```yaml
id: graph-bs
status: kept
change:
  flags:
    --cuda_graph_max_bs: 128
    enable-metrics: true
    schedule-policy:
  env: {NCCL_ALGO: Ring, NCCL_P2P_LEVEL: 4, OLD: null, SWITCH: on}
expected_gain: +10..18 %
cost: one restart
result: 82 -> 89.5 tok/s   # measured on Monday
```

## 2. Another all-reduce

```yaml
id: all-reduce
change:
  patch: patches/all-reduce.diff
  environment: cu13
  files:
    sitecustomize.py: |
      import os
needs: [graph-bs, cuda>=13 and gpu.count>=8]
risk: high
approval: yes
may_break: everything
undo: the other environment
expected_gain: [0.05, 0.1]
```

## 5. Only prose

To be thought about. It may give 5 %.

## Set aside

### Tree all-reduce
~~~~yaml
id: tree
status: dead
retry_when: sglang>=0.5.24
~~~~

## How a block looks

````md
## 9. Not an item
```yaml
id: example
status: open
```
````

```yaml
services:
  web: nothing of ours
```
"""


def problems(text: str) -> list[tuple[int, str]]:
    return [(p.line, p.message) for p in read_plan(text).problems]


def only_problem(text: str) -> Problem:
    found = read_plan(text).problems
    assert len(found) == 1, found
    return found[0]


def item_with(block: str, heading: str = "## 1. Title") -> str:
    return f"{heading}\n```yaml\n{textwrap.dedent(block).strip()}\n```\n"


def test_a_plan_as_it_should_be() -> None:
    plan = read_plan(PLAN)
    assert plan.title == "Faster single-stream decoding"
    assert plan.problems == ()
    assert [(i.id, i.rank, i.status, i.line) for i in plan.items] == [
        ("graph-bs", 1, Status.KEPT, 5),
        ("all-reduce", 2, Status.OPEN, 27),
        ("only-prose", 5, Status.OPEN, 45),
        ("tree", None, Status.DEAD, 51),
    ]
    first, second, third, fourth = plan.items
    assert first == Item(
        id="graph-bs",
        title="Smaller graph buffers",
        line=5,
        rank=1,
        prose="Buffers of 512 batches take memory that the cache could use.\n\n"
        "### Why it may work\n\nThey are captured at start.",
        status=Status.KEPT,
        change=Change(
            flags={"cuda-graph-max-bs": 128, "enable-metrics": True, "schedule-policy": None},
            env={"NCCL_ALGO": "Ring", "NCCL_P2P_LEVEL": "4", "OLD": None, "SWITCH": "on"},
        ),
        expected_gain=(0.1, 0.18),
        cost="one restart",
        result="82 -> 89.5 tok/s",
    )
    assert second.change == Change(
        patch="patches/all-reduce.diff", environment="cu13", files={"sitecustomize.py": "import os\n"}
    )
    assert second.needs == ("graph-bs", "cuda>=13 and gpu.count>=8")
    assert (second.risk, second.approval, second.expected_gain) == (Risk.HIGH, True, (0.05, 0.1))
    assert (second.may_break, second.undo) == ("everything", "the other environment")
    assert third.prose == "To be thought about. It may give 5 %."
    assert third.change is None
    assert fourth.retry_when == "sglang>=0.5.24"


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_line_ends_do_not_matter(ending: str) -> None:
    assert read_plan(PLAN.replace("\n", ending)) == read_plan(PLAN)


@pytest.mark.parametrize(
    ("heading", "kind", "place", "title"),
    [
        ("1. Title", Kind.ORDINAL, (1,), "Title"),
        ("1) Title", Kind.ORDINAL, (1,), "Title"),
        ("12: Title", Kind.ORDINAL, (12,), "Title"),
        ("#1 — Title", Kind.ORDINAL, (1,), "Title"),
        ("3 – Title", Kind.ORDINAL, (3,), "Title"),
        ("1.2 Title", Kind.ORDINAL, (1, 2), "Title"),
        ("P1: Title", Kind.PRIORITY, (1,), "Title"),
        ("P0 — Title", Kind.PRIORITY, (0,), "Title"),
        ("[P2] Title", Kind.PRIORITY, (2,), "Title"),
        ("Priority 1: Title", Kind.PRIORITY, (1,), "Title"),
        ("PRIORITY 2: Title (2-4 hours)", Kind.PRIORITY, (2,), "Title (2-4 hours)"),
        ("Rank 1 Title", Kind.PRIORITY, (1,), "Title"),
        ("Rank #3: Title", Kind.PRIORITY, (3,), "Title"),
        ("🎯 Priority 1: Title", Kind.PRIORITY, (1,), "Title"),
        ("Phase 2: Title (Priority 1) 🔥", Kind.PRIORITY, (1,), "Title"),
        ("Idea 1 (highest priority): Title", Kind.ORDINAL, (1,), "Title"),
        ("Phase B: Title", Kind.STAGE, (2,), "Title"),
        ("**4. `--flag` 512 → 128**", Kind.ORDINAL, (4,), "--flag 512 → 128"),
        ("~~1. Title~~", Kind.ORDINAL, (1,), "Title"),
        ("✅ 1. Title", Kind.ORDINAL, (1,), "Title"),
        ("[x] 3. Title", Kind.ORDINAL, (3,), "Title"),
        ("1. [Title](https://example.org/a)", Kind.ORDINAL, (1,), "Title"),
        ("1.", Kind.ORDINAL, (1,), ""),
        ("Title", None, None, "Title"),
        ("1.5x speed-up", None, None, "1.5x speed-up"),
        ("2 GPUs a replica", None, None, "2 GPUs a replica"),
        ("P95 latency", None, None, "P95 latency"),
        ("P2P transfers", None, None, "P2P transfers"),
        ("2026-11 in review", None, None, "2026-11 in review"),
        ("0.5.23 upgrade", None, None, "0.5.23 upgrade"),
        ("7.x and later", None, None, "7.x and later"),
    ],
)
def test_headings(heading: str, kind: Kind | None, place: tuple[int, ...] | None, title: str) -> None:
    ranked = read_heading(heading)
    assert (ranked.kind, ranked.place, ranked.title) == (kind, place, title)


@pytest.mark.parametrize(
    ("heading", "status"),
    [
        ("1. Title", Status.OPEN),
        ("1. Title ✅", Status.KEPT),
        ("1. Title — DONE", Status.KEPT),
        ("1. Title DONE", Status.KEPT),
        ("1. Title [reverted]", Status.REVERTED),
        ("1. Title (reverted on Monday)", Status.REVERTED),
        ("1. ~~Title~~", Status.DROPPED),
        ("~~1. Title~~", Status.DROPPED),
        ("1. ~~Title~~ (reverted)", Status.REVERTED),
        ("1. ❌ Title", Status.DEAD),
        ("1. Title ❌ REMOVED", Status.DROPPED),
        ("⚠️ 1. Title → ✅ DONE", Status.KEPT),
        ("1. Title — ✅ DONE (38 → 44 tok/s, +16%)", Status.KEPT),
        ("1. Title — ✅ DONE (no change, as before)", Status.INCONCLUSIVE),
        ("1. Title — ⏸ Skipped", Status.DROPPED),
        ("1. Title 🚧", Status.TRYING),
        ("1. Title (in progress)", Status.TRYING),
        ("1. Title [blocked]", Status.PARKED),
        ("1. [ ] Title", Status.OPEN),
        ("1. [x] Title", Status.KEPT),
        ("1. Title: failed", Status.DEAD),
        ("1. Failed requests: retry", Status.OPEN),
        ("1. Fixed batch size", Status.OPEN),
        ("1. Custom all-reduce: dead simple kernel", Status.OPEN),
        ("1. Channels — testing 8 and 16", Status.OPEN),
        ("1. Move to CUDA 13 (needs approval)", Status.OPEN),
    ],
)
def test_marks_of_a_heading_give_the_status(heading: str, status: Status) -> None:
    assert read_plan(f"## {heading}\n\ntext\n").items[0].status is status


def test_marks_are_no_part_of_the_title_or_the_id() -> None:
    item = read_plan("## 1. Fewer channels — ✅ DONE (+2 %)\n").items[0]
    assert (item.id, item.title) == ("fewer-channels", "Fewer channels")


@pytest.mark.parametrize(
    ("block", "line", "said"),
    [
        ("id: a\nstauts: open", 4, "unknown key 'stauts'; did you mean status?"),
        ("id: a\nzzz: 1", 4, "unknown key 'zzz'; known are id, status"),
        ("id: a\nstatus: opne", 4, "found 'opne'; did you mean open?"),
        ("id: a\nstatus:", 4, "status: expected text, found nothing"),
        ("id: a\nstatus: [open]", 4, "status: expected text, found a list"),
        ("id: a b", 3, "id: an id is made of letters"),
        ("id: a\nrisk: huge", 4, "risk: expected low, medium or high; found 'huge'"),
        ("id: a\napproval: maybe", 4, "approval: expected true or false, found text"),
        ("id: a\nexpected_gain: much", 4, "expected_gain: expected a gain such as"),
        ("id: a\nexpected_gain: 12", 4, "write '12 %' if that is what is meant"),
        ("id: a\nexpected_gain: 18-10 %", 4, "the lower end comes first"),
        ("id: a\nexpected_gain: [0.1]", 4, "expected two ends"),
        ("id: a\nexpected_gain: true", 4, "expected a gain"),
        ("id: a\nretry_when: cuda 13", 4, "retry_when: expected a condition"),
        ("id: a\nneeds: {b: c}", 4, "needs: expected text, found a mapping"),
        ("id: a\nneeds: [b]", 4, "no item is called 'b'"),
        ("id: a\nneeds: cuda>=", 4, "needs: expected a condition"),
        ("id: a\nneeds: a", 4, "these items wait for each other: a -> a"),
        ("id: a\ncost: [1]", 4, "cost: expected text, found a list"),
        ("id: a\nchange: none", 4, "change: expected a mapping, found text"),
        ("id: a\nchange:\n  flgas: {}", 5, "unknown key 'flgas'; did you mean flags?"),
        ("id: a\nchange:\n  flags: [x]", 5, "flags: expected a mapping, found a list"),
        ("id: a\nchange:\n  flags:\n    a b: 1", 6, "'a b' is no name of a flag"),
        ("id: a\nchange:\n  flags:\n    a-b: 1\n    --a_b: 2", 7, "the flag a-b is given twice"),
        ("id: a\nchange:\n  flags:\n    a: {b: 1}", 6, "the flag a takes one value, found a mapping"),
        ("id: a\nchange:\n  flags:\n    a: !x 1", 6, "the flag a takes one value, found text"),
        ("id: a\nchange:\n  env:\n    2A: 1", 6, "no name of a variable"),
        ("id: a\nchange:\n  files:\n    ../up: x", 6, "no path inside the environment's folder"),
        ("id: a\nchange:\n  files:\n    up:", 6, "takes its whole text, found nothing"),
        ("id: a\nchange:\n  patch: /etc/x.diff", 5, "expected a path inside the plan's folder"),
        ("id: a\nstatus: open\nstatus: kept", 5, "status stands here a second time; the first is in line 4"),
        ("id: a\nstatus: open: kept", 4, "not valid YAML"),
        ("id: a\nneeds: [b", 4, "not valid YAML"),
        ("id: a\n\tstatus: open", 4, "not valid YAML"),
        ("<<: &x {id: a}\nstatus: open", 3, "unknown key '<<'"),
    ],
)
def test_complaints_about_a_block_name_their_line(block: str, line: int, said: str) -> None:
    found = read_plan(f"## 1. Title\n```yaml\n{block}\n```\n").problems
    assert [p.line for p in found if said in p.message] == [line], found
    assert all(p.fatal for p in found)


@pytest.mark.parametrize(
    ("text", "line", "said", "ambiguous"),
    [
        ("", 1, "no item found", False),
        ("# Plan\n\nNothing yet.\n", 1, "no item found", False),
        ("## 1. A\n## 1. B\n", 2, "rank 1 is given twice: here and in line 1 ('A')", True),
        ("## 2. A\n## 1. B\n", 2, "rank 1 comes after rank 2 of line 1", True),
        (
            item_with("id: a") + item_with("id: a", "## 2. B"),
            7,
            "the id a is given twice: here and by the item of line 1",
            False,
        ),
        (
            item_with("id: a\nchange: {}\nstatus: open") + "```yaml\nid: b\n```\n",
            7,
            "a second yaml block in 'Title'",
            True,
        ),
        (
            item_with("id: a\nstatus: kept", "## 1. T [reverted]"),
            4,
            "the status is kept, but line 1 marks 'T' as 'reverted'",
            True,
        ),
        (item_with("id: a\nstatus: kept", "## 1. ~~T~~"), 4, "the status is kept", True),
        (item_with("id: a\nstatus: kept", "## 1. T ❌"), 4, "the status is kept", True),
        (item_with("id: a\nstatus: reverted", "## 1. T ✅"), 4, "the status is reverted", True),
        (item_with("id: a\nstatus: open", "## 1. T — DONE"), 4, "the status is open", True),
        ("## 1. T [kept] (reverted)\n", 1, "'T' is marked both", True),
        ("## 1. A\ntext\n```sh\nls\n## 2. B\n", 3, "never closed", False),
        ("## 1. A\n<!-- hidden\n## 2. B\n", 2, "never closed", False),
    ],
)
def test_what_makes_a_plan_unfit_to_follow(text: str, line: int, said: str, ambiguous: bool) -> None:
    problem = only_problem(text)
    assert said in problem.message
    assert (problem.line, problem.fatal, problem.ambiguous) == (line, True, ambiguous)


def test_items_that_wait_for_each_other() -> None:
    text = item_with("id: a\nneeds: b", "## 1. A") + item_with("id: b\nneeds: [c, cuda>=13]", "## 2. B")
    text += item_with("id: c\nneeds: a", "## 3. C")
    assert problems(text) == [(4, "needs: these items wait for each other: a -> b -> c -> a")]


@pytest.mark.parametrize(
    "text",
    [
        "## 1. A\n## 3. B\n## 10. C\n",
        item_with("id: a\nstatus: kept", "## 1. T ✅"),
        item_with("id: a\nstatus: kept", "## 1. T — DONE"),
        item_with("id: a\nstatus: reverted", "## 1. T — DONE"),
        item_with("id: a\nstatus: dead", "## 1. ~~T~~ ❌"),
        item_with("id: a\nstatus: kept", "## 1. T (in progress)"),
        "## P0: A\n## P0: B\n## P1: C\n",
        item_with("id: a\nstatus: open", "## P1: A") + item_with("id: b\nstatus: open", "## P1: B"),
        "## 1. A\n```yaml\nservices: {}\n```\n```yaml\nid: a\nstatus: open\n```\n",
        "## 1. A\n\n    ```yaml\n    id: shown as code\n\ntext\n",
        "## 1. A\n- a list\n  ```sh\n  ## 2. not this\n  ```\n",
        "---\ntitle: 1. not an item\n---\n\n## 1. A\n",
        "## 1. A\n\n<!--\n## 1. Hidden\n-->\n\n## 2. B\n",
    ],
)
def test_what_can_be_read_in_one_way(text: str) -> None:
    assert read_plan(text).problems == ()


def test_priorities_shared_by_items_that_can_be_run_are_ambiguous() -> None:
    block = "id: {}\nchange: {{flags: {{x: 1}}}}"
    text = item_with(block.format("a"), "## P1: A") + item_with(block.format("b"), "## P1: B")
    assert only_problem(text).ambiguous


def test_a_block_under_no_item_is_reported_but_not_fatal() -> None:
    problem = only_problem("# Plan\n```yaml\nid: lost\n```\n## 1. A\n")
    assert (problem.line, problem.fatal) == (2, False)


def test_items_under_sections_by_priority() -> None:
    text = "## P0: quick wins\n" + item_with("id: a", "### 1. A") + item_with("id: b", "### 2. B")
    text += "## P1: later\n" + item_with("id: c", "### 1. C")
    plan = read_plan(text)
    assert [(i.id, i.rank) for i in plan.items] == [("a", 1), ("b", 2), ("c", 3)]
    assert plan.problems == ()


def test_numbered_headings_inside_an_item_are_its_prose() -> None:
    plan = read_plan("## 1. A\n### 1. Build\n### 2. Run\n```yaml\nid: a\nstatus: open\n```\n## 2. B\n")
    assert [(i.id, i.rank, i.prose) for i in plan.items] == [("a", 1, "### 1. Build\n### 2. Run"), ("b", 2, "")]


def test_ids_of_prose_items_are_slugs_that_differ() -> None:
    text = "## 1. Fewer channels\n## 2. Fewer channels\n## 3. 🔥\n## 4. Größere Blöcke\n" + item_with(
        "id: fewer-channels", "## 5. X"
    )
    assert [i.id for i in read_plan(text).items] == [
        "fewer-channels-2",
        "fewer-channels-3",
        "item-3",
        "größere-blöcke",
        "fewer-channels",
    ]


def test_flag_values_keep_their_kind() -> None:
    flags = "{a: 1, b: 0.5, c: true, d: no, e: '1', f: 0123, g: 1:30, h: 2026-01-01, i: 1e3, j: .nan, k: none, l: ~}"
    change = read_plan(item_with(f"id: x\nchange: {{flags: {flags}}}")).items[0].change
    assert change is not None
    assert change.flags == {
        "a": 1, "b": 0.5, "c": True, "d": False, "e": "1", "f": 123, "g": "1:30", "h": "2026-01-01", "i": "1e3", "j": ".nan",
        "k": "none", "l": None,
    }  # fmt: skip
    assert isinstance(change.flags["c"], bool)


RANGES = """
id: a
change:
  flags:
    --schedule_conservativeness: 0.3..1.3
    cuda-graph-max-bs-decode: [512, 8, 64]
    chunked-prefill-size: 2048 .. 8192 step 2048
    stream-interval: 1..20
    attention-backend: [triton, flashinfer]
    enable-mixed-chunk: [true, null]
    tp-size: 8
  env:
    NCCL_MAX_NCHANNELS: [8, 32, 16]
    NCCL_ALGO: [Ring, Tree]
    NCCL_BUFFSIZE: 1e6..4e6
    OTHER: on
  files: {a.py: x}
"""


def test_ranges_become_axes_and_the_rest_stays_the_change() -> None:
    plan = read_plan(item_with(RANGES))
    assert plan.problems == ()
    (item,) = plan.items
    assert item.change == Change(flags={"tp-size": 8}, env={"OTHER": "on"}, files={"a.py": "x"})
    assert item.space == (
        Axis("flag", "attention-backend", ("triton", "flashinfer")),
        Axis("flag", "chunked-prefill-size", low=2048, high=8192, step=2048, integer=True),
        Axis("flag", "cuda-graph-max-bs-decode", (8, 64, 512)),
        Axis("flag", "enable-mixed-chunk", (True, None)),
        Axis("flag", "schedule-conservativeness", low=0.3, high=1.3),
        Axis("flag", "stream-interval", low=1, high=20, integer=True),
        Axis("env", "NCCL_ALGO", ("Ring", "Tree")),
        Axis("env", "NCCL_BUFFSIZE", low=1e6, high=4e6),
        Axis("env", "NCCL_MAX_NCHANNELS", ("8", "16", "32")),
    )
    assert [type(x) for x in (item.space[5].low, item.space[4].low)] == [int, float]
    assert from_body(Item, to_body(item)) == item


def test_an_item_of_ranges_alone_is_no_prose() -> None:
    item = read_plan(item_with("id: a\nchange: {flags: {x: [1, 2]}}")).items[0]
    assert (item.change, item.space) == (Change(), (Axis("flag", "x", (1, 2)),))
    assert read_plan(item_with("id: a\nchange:")).items[0].space == ()


@pytest.mark.parametrize(
    "value",
    [
        "../x", "a/../b", "/srv/x..y", "..", "...", "wait...", "x..", "one two..three", "a..b c", "C:\\..\\x", "'a..b'",
        '"1.. 2 3"', "'8..'", "1.5", "-1",
    ],
)  # fmt: skip
def test_dots_in_a_text_are_no_range(value: str) -> None:
    item = read_plan(item_with(f"id: a\nchange:\n  flags:\n    x: {value}\n  env:\n    Y: {value}")).items[0]
    assert item.space == ()
    assert item.change is not None
    assert str(item.change.flags["x"]) == item.change.env["Y"] == value.strip("'\"")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("a..b", "expected LOW..HIGH with two numbers, such as 0.3..1.3 or 8..64 step 8; found 'a..b'"),
        ("1..b", "found '1..b'"),
        ("a..2", "found 'a..2'"),
        ("8..", "found '8..'"),
        ("..8", "found '..8'"),
        ("1...5", "found '1...5'"),
        ("1..8 step", "found '1..8 step'"),
        ("1..8 by 2", "found '1..8 by 2'"),
        ("8..1", "expected the lower end first, found '8..1'"),
        ("1..1", "expected the lower end first, found '1..1'"),
        ("1..99999999999999999999", "expected numbers up to"),
        ("1..8 step 0", "expected a step above 0 that fits between the ends"),
        ("1..8 step -1", "expected a step above 0 that fits between the ends"),
        ("1..8 step 9", "expected a step above 0 that fits between the ends"),
        ("0..1 step 1e-9", "expected a step above 0 that fits between the ends, 1000000 times at most; found 1e-9"),
        ("[]", "expected two values or more to choose among, found none"),
        ("[8]", "expected two values or more to choose among, found 1"),
        ("[8, 16, 8]", "expected every value once, found 8 and 8"),
        ("[8, 8.0]", "expected every value once, found 8 and 8.0"),
        ("[false, null]", "expected every value once, found false and null"),
        ("[8, lpm]", "expected values of one kind, found numbers and text"),
        ("[true, 8]", "expected values of one kind, found numbers and true or false"),
        ("[1, [2]]", "expected single values in the list, found a list"),
        ("[1, {a: 2}]", "expected single values in the list, found a mapping"),
        ("[1..4, 8]", "expected single values in the list, found the range '1..4'"),
        ("[a, b..c]", "expected single values in the list, found the range 'b..c'"),
    ],
)
def test_ranges_that_make_no_sense(value: str, said: str) -> None:
    problem = only_problem(item_with(f"id: a\nchange:\n  flags:\n    b: 1\n    x: {value}\n    c: 2"))
    assert (problem.line, problem.fatal) == (7, True)
    assert problem.message.startswith("change: flags: the flag x: expected")
    assert said in problem.message


@pytest.mark.parametrize(
    ("block", "line", "said"),
    [
        ("env:\n    X: a..b", 6, "change: env: the variable X: expected LOW..HIGH with two numbers"),
        ("env:\n    X: [1]", 6, "change: env: the variable X: expected two values or more"),
        ("env:\n    X: [1, 1.0]", 6, "expected every value once"),
        ("env:\n    X: {a: 1}", 6, "change: env: the variable X takes one value, found a mapping"),
        (
            "files:\n    a: [x, y]",
            6,
            "the file a takes its whole text, found a list; only flags and env can have a range",
        ),
        ("files:\n    a: 1..3", 6, "the file a takes its whole text, found '1..3'"),
        ("patch: [a.diff, b.diff]", 5, "patch: expected one path, found a list; only flags and env can have a range"),
        ("patch: 1..3", 5, "patch: expected one path, found '1..3'"),
        ("environment: [cu12, cu13]", 5, "environment: expected one name, found a list"),
        ("flags: {x: [1, 2]}\n  env: {x: [1, 2]}", 6, "x has a range as a flag and as a variable"),
        ("flags: [x]", 5, "flags: expected a mapping, found a list"),
    ],
)
def test_where_a_range_cannot_stand(block: str, line: int, said: str) -> None:
    problem = only_problem(item_with(f"id: a\nchange:\n  {block}"))
    assert problem.line == line
    assert said in problem.message


def test_a_range_in_quotes_is_still_one_where_it_has_numbers() -> None:
    item = read_plan(item_with("id: a\nchange: {flags: {x: '0.3..1.3'}, files: {f: '1..3'}}")).items[0]
    assert item.space == (Axis("flag", "x", low=0.3, high=1.3),)
    assert item.change == Change(files={"f": "1..3"})


def test_the_order_in_which_ranges_are_written_does_not_matter() -> None:
    one = read_plan(item_with("id: a\nchange: {env: {Z: [1, 2]}, flags: {b: [2, 1], a: 1..2}}")).items[0]
    other = read_plan(item_with("id: a\nchange: {flags: {a: 1..2, b: [1, 2]}, env: {Z: [2, 1]}}")).items[0]
    assert one == other


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=30) | st.from_regex(r"[-+0-9a-z. ]{0,12}", fullmatch=True))
def test_any_value_is_a_text_a_range_or_a_problem(text: str) -> None:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"') if text.isprintable() else ""
    for value in (quoted and f'"{quoted}"', text if re.fullmatch(r"[-+0-9a-z.][-+0-9a-z. ]*", text) else "x"):
        plan = read_plan(item_with(f"id: a\nchange:\n  flags:\n    x: {value}"))
        change, space = plan.items[0].change, plan.items[0].space
        fixed = change is not None and "x" in change.flags
        assert fixed + bool(space) + bool(plan.problems) == 1
        for axis in space:
            assert axis.low < axis.high


@pytest.mark.parametrize(
    ("text", "gain"),
    [
        ("+10..18 %", (0.1, 0.18)),
        ("10-18%", (0.1, 0.18)),
        ("+20–40%", (0.2, 0.4)),
        ("0.1", (0.1, 0.1)),
        ("0.1..0.18", (0.1, 0.18)),
        ("5 %", (0.05, 0.05)),
        ("~15 percent", (0.15, 0.15)),
        ("-5..+3 %", (-0.05, 0.03)),
        ("up to 30%", (0.0, 0.3)),
        ("1.5-2x", (0.5, 1.0)),
        ("2x", (1.0, 1.0)),
    ],
)
def test_gains(text: str, gain: tuple[float, float]) -> None:
    assert read_gain(text) == gain
    assert find_gain(f"about {text}, or so") == (gain if "%" in text or "x" in text or "percent" in text else None)


Row = tuple[Any, ...]


@pytest.mark.parametrize(
    ("name", "title", "rows"),
    [
        (
            "plan-ideas.md",
            "Ideas for faster single-stream decoding, 3 May 2026",
            [
                (9, 1, Status.OPEN, "Accept by entropy", (0.15, 0.3), ""),
                (15, 2, Status.OPEN, "Smaller draft head", (0.04, 0.09), ""),
                (28, 3, Status.OPEN, "Capture the draft loop in a graph", (0.03, 0.08), ""),
            ],
        ),
        (
            "plan-phases.md",
            "Roadmap of a small engine",
            [
                (7, 1, Status.KEPT, "Reuse buffers", (0.1, 0.2), "Low"),
                (13, 2, Status.OPEN, "Grow blocks on demand", None, "Low"),
                (18, 3, Status.OPEN, "Chunked prefill", (0.5, 0.5), "Medium"),
                (25, 4, Status.DROPPED, "Custom kernels", None, "High"),
            ],
        ),
        (
            "plan-letters.md",
            "Closing the bandwidth gap",
            [
                (13, 1, Status.OPEN, "Double the values a thread (target: 55 tok/s)", (0.4, 0.8), ""),
                (17, 2, Status.KEPT, "Scales in arrays of their own", None, ""),
                (21, 3, Status.INCONCLUSIVE, "Sweep of the group sizes", None, ""),
                (23, 4, Status.DROPPED, "Split the inner loop", None, ""),
            ],
        ),
        (
            "plan-brackets.md",
            "How to beat the other server",
            [
                (17, 1, Status.OPEN, "Fix many streams", (1.0, 2.0), "1 day"),
                (31, 2, Status.OPEN, "Embeddings", None, "0.5 day"),
            ],
        ),
        (
            "plan-table.md",
            "What to do next",
            [
                (12, 1, Status.KEPT, "Large pages (1 GB)", (0.1, 0.15), "1 hour"),
                (13, 2, Status.OPEN, "Pin to a node", (0.05, 0.1), "1 hour"),
                (14, 3, Status.REVERTED, "Suffix drafts", (1.0, 2.0), "1-2 days"),
                (15, 4, Status.TRYING, "Smaller drafts | Q2", (0.2, 0.3), "2 hours"),
                (16, None, Status.PARKED, "Another BLAS", None, "High"),
            ],
        ),
        (
            "plan-checklist.md",
            "TODO",
            [
                (8, 1, Status.KEPT, "Pin the clocks", None, ""),
                (9, 2, Status.OPEN, "Fewer channels", None, ""),
                (11, 3, Status.OPEN, "Larger chunks", None, ""),
                (12, 4, Status.TRYING, "Warm-up request", None, ""),
                (13, 5, Status.DROPPED, "Other sampler", None, ""),
            ],
        ),
    ],
)
def test_plans_as_people_write_them(name: str, title: str, rows: list[Row]) -> None:
    plan = read_plan((DOCUMENTS / name).read_text(encoding="utf-8"))
    assert [(i.line, i.rank, i.status, i.title, i.expected_gain, i.cost) for i in plan.items] == rows
    assert plan.title == title
    assert plan.problems == ()
    assert all(i.change is None for i in plan.items)


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("# Plan\n1. **A** – first\n2. **B** – second\n", ["A", "B"]),
        ("## Ideas\n1. A: first\n2. B\n\n## Lessons\n1. C\n", ["A", "B"]),
        ("## Findings\n1. **C** yes\n\n## Next steps\n1. **A** – first\n1. **B**\n", ["A", "B"]),
        ("- [ ] P1: A\n- [x] P0: B\n", ["B", "A"]),
        ("| # | Change | Status |\n|---|---|---|\n| 2 | B | |\n| 1 | A | done |\n", ["A", "B"]),
        ("| Prio | Idea |\n|:-:|---|\n| 🔴 High | A |\n| low | C |\n| Medium | B |\n", ["A", "B", "C"]),
        ("| Endpoint | Status |\n|---|---|\n| GET | done |\n\n1. **A**\n", ["A"]),
    ],
)
def test_lists_and_tables(text: str, titles: list[str]) -> None:
    plan = read_plan(text)
    found = [i.title for i in plan.items]
    assert sorted(found) == sorted(titles)
    if "| 2 | B" not in text:
        assert found == titles


def test_a_table_whose_ranks_go_backwards_is_ambiguous() -> None:
    problem = only_problem("| # | Change | Status |\n|---|---|---|\n| 2 | B | |\n| 1 | A | done |\n")
    assert (problem.line, problem.ambiguous) == (4, True)


def test_blocks_win_over_lists_and_tables() -> None:
    text = "1. **A**\n2. **B**\n\n" + item_with("id: x")
    assert [i.id for i in read_plan(text).items] == ["x"]


def test_reading_starts_without_pydantic_or_yaml() -> None:
    code = "import sys, optagent.agent.plan.read; print([m for m in ('pydantic', 'yaml', 'packaging') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


pieces = st.sampled_from(
    [
        "## 1. A",
        "## P1: B",
        "### 2) C ✅",
        "# T",
        "```yaml",
        "````",
        "~~~",
        "id: a",
        "status: kept",
        "needs: [a, b]",
        "change:",
        "  flags: {x: 1}",
        "| Rank | Idea |",
        "|---|---|",
        "| 1 | x |",
        "- [x] y",
        "1. **z** – w",
        "---",
        "===",
        "<!--",
        "-->",
        "\t",
        "&a *a",
        "text",
        "",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(pieces | st.text(max_size=12), max_size=25), st.sampled_from(["\n", "\r\n", "\r", "\u2028"]))
def test_no_text_is_too_much(lines: list[str], ending: str) -> None:
    text = ending.join(lines)
    plan = read_plan(text)
    count = max(1, len(lines) + sum(line.count(c) for line in lines for c in "\r\n\x85\u2028\u2029"))
    assert all(1 <= p.line <= count and p.message for p in plan.problems)
    assert plan == read_plan(text)
    assert isinstance(plan, Plan)
    assert bool(plan.items) or plan.problems


def test_a_block_nested_too_deep_is_a_problem_and_no_crash() -> None:
    for deep in ("[" * 50_000, "- " * 20_000, "{a: " * 20_000):
        assert "not valid YAML" in only_problem(f"## 1. A\n```yaml\nid: a\nneeds: {deep}\n```\n").message
