"""Which flags a server accepts, read from its own `--help`, since every release has others.

The layout is argparse's: an option's names and its value on one line, then its text, indented further.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from pydantic import TypeAdapter

from optagent.tools.calls.server import FlagsListed, FlagTold
from optagent.tools.commands import Command
from optagent.tools.files import replace_file

HELP_TIMEOUT_S = 300.0
"""Importing SGLang alone takes some 12 s on an idle machine, and minutes from a cold network file system."""
HELP_BYTES = 4_000_000
"""More than this of a help is not read; SGLang 0.5.23 prints 190 kB."""
SIMILAR, CUTOFF = 3, 0.72
"""How many similar names are told at most, and how alike they have to be (difflib's ratio)."""
MOST_NAMES = 12
NAME_LENGTH, SENTENCE_LENGTH = 80, 300

Flags = dict[str, FlagTold]
"""Every long option of a server, by its name without dashes."""

_FLAGS = TypeAdapter(Flags)
_OPTION = re.compile(r"^ {1,4}(?=-)(.*?)(?: {2,}(.*))?$")
_TEXT = re.compile(r"^ {6,}(\S.*)$")
_NAME = re.compile(r"(?:^|[ ,])--([A-Za-z0-9][\w.-]*)")
_CHOICES = re.compile(r"\{([^{}]*)\}")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_SENTENCE = re.compile(r"(?<=[.!?)])\s+(?=[A-Z([-])")
_DEPRECATED = re.compile(r"\W*(?:deprecated|removed)\b", re.IGNORECASE)
_IS_DEPRECATED = re.compile(
    r"(?:--(?P<name>[\w-]+)|\bthis (?:flag|option|argument|parameter))\W{0,2} (?:is|has been) deprecated\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Option:
    """One option of a help: its long names, what stands for its value ("" for a switch), and its text in one line."""

    names: tuple[str, ...]
    value: str
    text: str


def parse_help(text: str) -> Flags:
    """What argparse's help says about every long option. Prose that mentions an option does not count."""
    return {name: _told(option, name) for option in _options(text) for name in option.names}


def _options(text: str) -> Iterator[Option]:
    words: list[str] = []
    invocation = ""
    for line in (*_COLOUR.sub("", text).splitlines(), ""):
        if _open_braces(invocation) and (wrapped := line.strip()):
            invocation += wrapped
            continue
        option, prose = _OPTION.match(line), _TEXT.match(line)
        if prose and invocation:
            words.append(prose[1].strip())
            continue
        if invocation:
            yield from _option(invocation, words)
        invocation, words = (option[1], [option[2] or ""]) if option else ("", [])


def _open_braces(invocation: str) -> bool:
    """Whether choices were begun and not ended, so that the next line goes on with them."""
    return invocation.count("{") > invocation.count("}")


def _option(invocation: str, words: list[str]) -> Iterator[Option]:
    names = list(_NAME.finditer(_CHOICES.sub(lambda m: "{" + "_" * (len(m[0]) - 2) + "}", invocation)))
    if names:
        value = invocation[names[-1].end() :].strip()
        yield Option(tuple(m[1] for m in names), value, _joined(words))


def _joined(words: list[str]) -> str:
    """Wrapped lines as one; a line that was broken at a hyphen of a name is put together again."""
    text = " ".join(w for w in words if w)
    return re.sub(r"(?<=[A-Za-z0-9]-) (?=[a-z{])", "", text)


def _told(option: Option, name: str) -> FlagTold:
    choices = _CHOICES.match(option.value.lstrip("["))
    return FlagTold(
        known=True,
        switch=not option.value,
        choices=choices[1].split(",") if choices else None,
        deprecated=_deprecation(option.text, name),
    )


def _deprecation(text: str, name: str) -> str:
    """The sentence of an option's text that calls the option itself deprecated, with the one on what to use instead."""
    sentences = _SENTENCE.split(text)
    for index, sentence in enumerate(sentences):
        said = _IS_DEPRECATED.search(sentence)
        if _DEPRECATED.match(sentence) or (said and said["name"] in (None, name)):
            rest = sentences[index + 1] if index + 1 < len(sentences) else ""
            instead = rest if re.match(r"(?:please|use|set)\b", rest, re.IGNORECASE) else ""
            return f"{sentence} {instead}".strip()[:SENTENCE_LENGTH]
    return ""


def tell(flags: Mapping[str, FlagTold], name: str) -> FlagTold:
    """What argparse makes of `--name`: itself, the flags that begin with it, or nothing but similar spellings.

    A name that only one flag begins with is that flag to argparse, so it is told like it, but not as known.
    """
    if name in flags:
        return flags[name]
    begins = sorted(flag for flag in flags if name and flag.startswith(name))
    similar = get_close_matches(name[:NAME_LENGTH].replace("_", "-"), sorted(flags), SIMILAR, CUTOFF)
    if len(begins) == 1:
        return flags[begins[0]].model_copy(update={"known": False, "begins": begins, "similar": similar})
    return FlagTold(known=False, begins=begins[:MOST_NAMES], similar=similar)


def listed(flags: Mapping[str, FlagTold], names: Iterable[str], version: str | None) -> FlagsListed:
    return FlagsListed(flags={name: tell(flags, name) for name in names}, version=version)


class NoHelp(Exception):
    """The server printed no help; the message says why."""


def ask_for_flags(command: Command, timeout_s: float = HELP_TIMEOUT_S) -> Flags:
    """The flags that the server's help names. Raises NoHelp."""
    wide = {"COLUMNS": "400", "NO_COLOR": "1"}  # the wider, the less is broken over lines
    try:
        done = subprocess.run(
            command.argv,
            env=command.env | wide,
            cwd=command.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        raise NoHelp(f"{command.argv[0]} printed no help within {timeout_s:.0f} s") from None
    except OSError as error:
        raise NoHelp(f"{command.argv[0]}: {error.strerror or error}") from None
    flags = parse_help(done.stdout[:HELP_BYTES].decode(errors="replace"))
    if done.returncode != 0 or not flags:
        said = done.stderr[-HELP_BYTES:].decode(errors="replace").strip().splitlines()
        last = said[-1][:SENTENCE_LENGTH] if said else "silent"
        raise NoHelp(f"the server's help failed (exit {done.returncode}): {last}")
    return flags


def flags_of(
    command: Command, names: Iterable[str], version: str | None, cache: Path | None, source: str
) -> FlagsListed:
    """What the server at `command` says about `names`.

    Its whole help is remembered in `cache` for its version and `source`, the state of the checkout that it runs from
    ("" for none), since a patch may add a flag. Without a version or a cache it is asked anew.
    """
    try:
        if version is None or cache is None:
            return listed(ask_for_flags(command), names, version)
        kept = cache / f"help-{_identity(command, version, source)}.json"
        flags = _remembered(kept)
        if not flags:
            flags = ask_for_flags(command)
            with suppress(OSError):  # a full disk costs the memory of it, not the answer
                replace_file(kept, _FLAGS.dump_json(flags, exclude_defaults=True))
        return listed(flags, names, version)
    except NoHelp as why:
        return FlagsListed(version=version, problem=str(why))


def _identity(command: Command, version: str, source: str) -> str:
    told = json.dumps([command.argv, command.env.get("PYTHONPATH", ""), version, source])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _remembered(kept: Path) -> Flags:
    """The flags kept in a file; none when it was never written or is damaged."""
    try:
        return _FLAGS.validate_json(kept.read_bytes())
    except (OSError, ValueError):
        return {}
