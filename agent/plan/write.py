"""Writes where an item stands back into the plan's text, and leaves every other byte as it was."""

from __future__ import annotations

import re

from optagent.agent.markdown import split_lines
from optagent.agent.plan.blocks import Block, Entry
from optagent.agent.plan.draft import AfterProse, InBox, InCell
from optagent.agent.plan.model import Plan, Status
from optagent.agent.plan.read import Reading, read

_SAFE = re.compile(r"[A-Za-z0-9+(](?:[\w+.,%/()=<>~±→;'-]| (?!#)|:(?! )|#(?<! #))*(?<![ :])\Z")
_WORDS_OF_YAML = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n", "none"})
_BOX_OF = {Status.KEPT: "x", Status.OPEN: " ", Status.TRYING: "/", Status.DROPPED: "-"}


def with_status(text: str, item_id: str, status: Status, result: str = "") -> str:
    """`text` with the item's status and result, which is put on one line.

    Only the lines that hold them change: keys of the item's block, a block of its own for a headed item without one, a
    checkbox, or a cell of a table. The text comes back as it is when there is no such item or place, and when the
    change would make anything else of the plan read differently.
    """
    before = read(text)
    item = before.plan.item(item_id)
    place = before.places.get(item_id)
    result = _one_line(result)
    if item is None or place is None or (item.status, item.result) == (status, result):
        return text
    lines = split_lines(text)
    if isinstance(place, Block):
        written = _in_block(lines, place, _wanted(place, item.status, status, item.result, result))
    elif isinstance(place, AfterProse):
        written = _new_block(lines, place, item_id, status, result)
    elif isinstance(place, InBox):
        written = _in_box(lines, place, status)
    else:
        written = _in_row(lines, place, status, result)
    after = read(written)
    return written if _same_but_for(before, after, item_id, status, result) else text


def _wanted(block: Block, old: Status, status: Status, old_result: str, result: str) -> dict[str, str]:
    """The keys whose lines change, with their new text."""
    wanted = {}
    if old is not status or block.entry("status") is None:
        wanted["status"] = status.value
    if old_result != result:
        wanted["result"] = _quoted(result) if block.root.flow_style else _scalar(result)
    return wanted


def _in_block(lines: list[str], block: Block, wanted: dict[str, str]) -> str:
    """Values are replaced from the last to the first, so that earlier positions stay good; absent keys come in last."""
    present = [e for e in block.entries if e.key in wanted]
    for entry in sorted(present, key=lambda e: e.line, reverse=True):
        _replace(lines, block, entry, wanted[entry.key])
    absent = {k: v for k, v in wanted.items() if not any(e.key == k for e in present)}
    if not absent:
        return "".join(lines)
    if block.root.flow_style:
        row, column = _at(block, block.root.start_mark.line), block.root.start_mark.column + 1
        pairs = ", ".join(f"{k}: {v}" for k, v in absent.items())
        rest = lines[row][column:]
        joint = "" if rest.lstrip().startswith("}") else ", "
        lines[row] = f"{lines[row][:column]}{pairs}{joint}{rest}"
        return "".join(lines)
    row = _row_after(block, absent)
    indent, ending = " " * block.root.start_mark.column, _ending(lines[row - 1])
    lines[row:row] = [f"{indent}{k}: {v}{ending}" for k, v in absent.items()]
    return "".join(lines)


def _row_after(block: Block, absent: dict[str, str]) -> int:
    """Where absent keys go: after the status or the id, else at the block's start."""
    names = ("status", "id") if "status" not in absent else ("id",)
    anchor = next((e for name in names if (e := block.entry(name))), None)
    if anchor is None:
        return _at(block, block.root.start_mark.line)
    return (
        _at(block, anchor.value.end_mark.line if anchor.value.end_mark.column else anchor.value.end_mark.line - 1) + 1
    )


def _replace(lines: list[str], block: Block, entry: Entry, text: str) -> None:
    start, end = entry.value.start_mark, entry.value.end_mark
    if (start.line, start.column) == (end.line, end.column):
        key_end = entry.key_node.end_mark
        row = _at(block, key_end.line)
        colon = lines[row].index(":", key_end.column) + 1
        lines[row] = f"{lines[row][:colon]} {text}{lines[row][colon:]}"
        return
    first, last = _at(block, start.line), _at(block, end.line)
    if end.column == 0 and end.line > start.line:
        tail, last = _ending(lines[last - 1]), last - 1
    else:
        tail = lines[last][end.column :]
    lines[first : last + 1] = [f"{lines[first][: start.column]}{text}{tail}"] + [""] * (last - first)


def _at(block: Block, line: int) -> int:
    return block.offset + line


def _new_block(lines: list[str], place: AfterProse, item_id: str, status: Status, result: str) -> str:
    ending = next((end for line in lines if (end := _ending(line))), "\n")
    body = [f"id: {item_id}", f"status: {status.value}", *([f"result: {_scalar(result)}"] if result else [])]
    block = [line + ending for line in ("", "```yaml", *body, "```")]
    if not _ending(lines[place.line]):
        lines[place.line] += ending
        block[-1] = "```"
    lines[place.line + 1 : place.line + 1] = block
    return "".join(lines)


def _in_box(lines: list[str], place: InBox, status: Status) -> str:
    line = lines[place.line]
    lines[place.line] = line[: place.column] + _BOX_OF.get(status, line[place.column]) + line[place.column + 1 :]
    return "".join(lines)


def _in_row(lines: list[str], place: InCell, status: Status, result: str) -> str:
    cells = [(place.status, status.value)]
    if place.result:
        cells.append((place.result, result.replace("\\", "\\\\").replace("|", "\\|")))
    line = lines[place.line]
    for (start, end), text in sorted(cells, reverse=True):
        padded = text.ljust(end - start) if line[end : end + 1] == " " else text
        line = line[:start] + padded + line[end:]
    lines[place.line] = line
    return "".join(lines)


def _same_but_for(before: Reading, after: Reading, item_id: str, status: Status, result: str) -> bool:
    """Whether nothing but the item's status and result reads differently, and no new problem came up."""
    item = after.plan.item(item_id)
    if item is None or item.status is not status:
        return False
    if isinstance(before.places[item_id], Block | AfterProse) and item.result != result:
        return False
    new = _complaints(after.plan) - _complaints(before.plan)
    return not new and _without(before.plan, item_id) == _without(after.plan, item_id)


def _complaints(plan: Plan) -> set[str]:
    """The problems without the numbers of lines, which may have moved."""
    return {re.sub(r"\bline \d+", "line", problem.message) for problem in plan.problems}


def _without(plan: Plan, item_id: str) -> list[object]:
    """The items as values, without their lines and without the status and result of one."""
    hidden = {"line"}
    mine = hidden | {"status", "result"}
    return [
        {k: v for k, v in vars(item).items() if k not in (mine if item.id == item_id else hidden)}
        for item in plan.items
    ]


def _ending(line: str) -> str:
    return line[len(line.rstrip("\r\n\x85\u2028\u2029")) :]


def _one_line(text: str) -> str:
    """`text` with every run of white space and control characters as one space."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _scalar(text: str) -> str:
    """`text` as a YAML scalar on one line."""
    if _SAFE.match(text) and text.lower() not in _WORDS_OF_YAML:
        return text
    return _quoted(text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
