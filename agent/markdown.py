"""Markdown as far as plans and handoffs need it: lines, headings, fenced code and what is hidden from a reader."""

from __future__ import annotations

import re
from typing import NamedTuple

# The line ends YAML knows, so that a line of the document and a line inside a YAML block are counted alike.
_LINE = re.compile(r"[^\r\n\x85\u2028\u2029]*(?:\r\n|[\r\n\x85\u2028\u2029])|[^\r\n\x85\u2028\u2029]+\Z")
_LINE_ENDS = "\r\n\x85\u2028\u2029"
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\Z")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*\Z")
_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})(.*)\Z")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}\Z")
_MARKER = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])(?:[ \t]|\Z)")
_NOT_PARAGRAPH = re.compile(r"[ \t]*(?:[-*+>|#]|\d{1,9}[.)][ \t])|\s*\Z")
_LINK = re.compile(r"!?\[([^\]\[]*)\]\([^()\s]*\)")


class Heading(NamedTuple):
    """A heading: `line` is the 0-based index of its text, `body` the index of the first line after it."""

    line: int
    body: int
    level: int
    text: str


class Fence(NamedTuple):
    """A block of fenced code: 0-based indices of its opening and its last line, and what follows the opening marks."""

    first: int
    last: int
    info: str
    closed: bool

    @property
    def language(self) -> str:
        return self.info.split(maxsplit=1)[0].lower().strip("{}") if self.info.strip() else ""


class Document(NamedTuple):
    """A scanned document. `hidden` holds the lines that are no prose: front matter, comments and fenced code."""

    lines: tuple[str, ...]
    headings: tuple[Heading, ...]
    fences: tuple[Fence, ...]
    hidden: frozenset[int]
    swallowed: int | None = None
    """The line where something opens that is never closed although headings follow it."""

    def own_end(self, index: int) -> int:
        """Where the text directly under heading number `index` ends: at the next heading of any level."""
        return self.headings[index + 1].line if index + 1 < len(self.headings) else len(self.lines)

    def section_end(self, index: int) -> int:
        """Where the whole section of heading number `index` ends: at the next heading of its level or above."""
        level = self.headings[index].level
        return next((h.line for h in self.headings[index + 1 :] if h.level <= level), len(self.lines))

    def above(self, index: int) -> list[Heading]:
        """The headings that heading number `index` stands under, nearest first."""
        level, found = self.headings[index].level, []
        for heading in reversed(self.headings[:index]):
            if heading.level < level:
                level = heading.level
                found.append(heading)
        return found


def split_lines(text: str) -> list[str]:
    """The lines of `text` with their line ends."""
    return _LINE.findall(text)


def scan(text: str) -> Document:
    """Headings and fences of `text`. Never raises."""
    return _Scanner([line.rstrip(_LINE_ENDS) for line in split_lines(text)]).run()


def is_rule(line: str) -> bool:
    """Whether the line is a horizontal rule."""
    return bool(_RULE.match(line))


def plain(text: str) -> str:
    """`text` without emphasis, code marks, strike-through and link targets."""
    text = _LINK.sub(r"\1", text)
    text = text.replace("**", "").replace("~~", "").replace("`", "")
    text = re.sub(r"(?<!\w)__|__(?!\w)", "", text)
    text = re.sub(r"(?<![\w*])\*(?=\S)([^*]*[^*\s])\*(?![\w*])", r"\1", text)
    return " ".join(text.split())


def slug(text: str, limit: int = 60) -> str:
    """`text` as an identifier: lower case words joined by dashes, cut at a word before `limit` characters."""
    words = re.findall(r"[^\W_]+", plain(text).lower())
    result = ""
    for word in words:
        if result and len(result) + 1 + len(word) > limit:
            break
        result = f"{result}-{word}" if result else word[:limit]
    return result


class _Scanner:
    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.headings: list[Heading] = []
        self.fences: list[Fence] = []
        self.hidden: set[int] = set()
        self.unclosed: int | None = None
        self.in_list = False

    def run(self) -> Document:
        at = self._front_matter()
        while at < len(self.lines):
            at = self._step(at)
        return Document(
            lines=tuple(self.lines),
            headings=tuple(self.headings),
            fences=tuple(self.fences),
            hidden=frozenset(self.hidden),
            swallowed=self._swallowed(),
        )

    def _step(self, at: int) -> int:
        line = self.lines[at]
        fence = _FENCE.match(line)
        if fence and self._opens(fence):
            return self._fence(at, fence)
        if line.lstrip(" ").startswith("<!--") and len(line) - len(line.lstrip(" ")) < 4:
            return self._comment(at)
        if heading := _ATX.match(line):
            self._heading(at, at + 1, len(heading[1]), heading[2] or "")
        elif self._underlined(at):
            level = 1 if self.lines[at + 1].lstrip()[0] == "=" else 2
            self._heading(at, at + 2, level, line)
            return at + 2
        elif _MARKER.match(line):
            self.in_list = True
        elif line.strip() and not line[0].isspace():
            self.in_list = False
        return at + 1

    def _heading(self, line: int, body: int, level: int, text: str) -> None:
        self.in_list = False
        self.headings.append(Heading(line, body, level, text.strip()))

    def _underlined(self, at: int) -> bool:
        """A one-line paragraph with a line of `=` or `-` under it."""
        if at + 1 >= len(self.lines) or not _SETEXT.match(self.lines[at + 1]):
            return False
        if _NOT_PARAGRAPH.match(self.lines[at]) or self.lines[at].startswith(("    ", "\t")):
            return False
        before = self.lines[at - 1] if at else ""
        return not before.strip() or at - 1 in self.hidden or bool(_ATX.match(before))

    def _opens(self, fence: re.Match[str]) -> bool:
        if fence[2][0] == "`" and "`" in fence[3]:
            return False
        return self.in_list or len(fence[1].expandtabs(4)) < 4

    def _fence(self, at: int, opening: re.Match[str]) -> int:
        marks = opening[2]
        closing = re.compile(rf"[ \t]*{re.escape(marks[0])}{{{len(marks)},}}[ \t]*\Z")
        end = next((n for n in range(at + 1, len(self.lines)) if closing.match(self.lines[n])), None)
        if end is None:
            self.unclosed = at
        last = len(self.lines) - 1 if end is None else end
        self.fences.append(Fence(at, last, opening[3].strip(), closed=end is not None))
        self.hidden.update(range(at, last + 1))
        return last + 1

    def _comment(self, at: int) -> int:
        start = self.lines[at].index("<!--") + 4
        if "-->" in self.lines[at][start:]:
            return at + 1
        end = next((n for n in range(at + 1, len(self.lines)) if "-->" in self.lines[n]), None)
        if end is None:
            self.unclosed = at
        last = len(self.lines) - 1 if end is None else end
        self.hidden.update(range(at, last + 1))
        return last + 1

    def _front_matter(self) -> int:
        if not self.lines or self.lines[0].lstrip("\ufeff").rstrip() != "---":
            return 0
        end = next((n for n in range(1, len(self.lines)) if self.lines[n].rstrip() in ("---", "...")), None)
        if end is None or not any(re.match(r"[\w-]+\s*:", line) for line in self.lines[1:end]):
            return 0
        self.hidden.update(range(end + 1))
        return end + 1

    def _swallowed(self) -> int | None:
        if self.unclosed is None:
            return None
        rest = self.lines[self.unclosed + 1 :]
        return self.unclosed if any(re.match(r" {0,3}#{1,6}[ \t]+\S", line) for line in rest) else None
