"""Renders a handoff: the data as front matter, and below it the same for a person."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from optagent.agent.change import Change, describe
from optagent.agent.handoff.markup import cell, code, line
from optagent.agent.handoff.model import FORMAT, Handoff
from optagent.agent.jsonable import to_body
from optagent.agent.records import Attempt, Baseline
from optagent.tools.calls.configuration import Configuration, flag_arguments

if TYPE_CHECKING:
    from jinja2 import Template

LONGEST = 1_500
_ODD_LINE_ENDS = "\r\x85\u2028\u2029"
_SURROGATE = re.compile("[\ud800-\udfff]")


def render_handoff(handoff: Handoff) -> str:
    """The handoff as markdown, which `read_handoff` reads back to the same handoff."""
    return _template().render(h=handoff, front_matter=front_matter(handoff)).rstrip("\n") + "\n"


def front_matter(handoff: Handoff) -> str:
    """The handoff as YAML, without what holds its default; what was read from a free-form document counts as data now."""
    import yaml

    body = _clean({"format": FORMAT, **to_body(replace(handoff, structured=True))})
    body = {k: [_Row(v) for v in value] if k in _IN_ROWS else value for k, value in body.items()}
    _share_files(body)
    text: str = yaml.dump(
        body, Dumper=_dumper(), sort_keys=False, allow_unicode=True, default_flow_style=False, width=10**9
    )
    return text


class _Row(dict[str, Any]):
    """A mapping that is written on one line: there can be many of them."""


_IN_ROWS = ("claims", "lessons", "attempts", "dead_ends", "next_steps", "left_out")


class _Shared(_Row):
    """A row that is written once and referred to after that."""


def _share_files(body: dict[str, Any]) -> None:
    """Write the environment files once where the first baseline has the same as the best one."""
    held = [body.get(name, {}).get("configuration", {}) for name in ("first_baseline", "baseline")]
    if held[0].get("files") and held[0]["files"] == held[1].get("files"):
        held[0]["files"] = held[1]["files"] = _Shared(held[1]["files"])


@cache
def _dumper() -> Any:
    """Writes lists of single values and rows on one line, and nothing by reference but what is shared."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return not isinstance(data, _Shared)

    def row(dumper: Dumper, data: _Row) -> yaml.Node:
        return dumper.represent_mapping("tag:yaml.org,2002:map", data.items(), flow_style=True)

    def sequence(dumper: Dumper, data: list[Any]) -> yaml.Node:
        flat = not any(isinstance(value, dict | list) for value in data)
        short = flat and sum(len(str(value)) for value in data) < 100
        return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=short)

    def text(dumper: Dumper, data: str) -> yaml.Node:
        style = '"' if any(c in data for c in _ODD_LINE_ENDS) else "|" if "\n" in data else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    Dumper.add_representer(str, text)
    Dumper.add_representer(_Row, row)
    Dumper.add_representer(_Shared, row)
    Dumper.add_representer(list, sequence)
    return Dumper


def _clean(value: Any) -> Any:
    """The value with half characters, which no file can hold, replaced."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_clean(k): _clean(v) for k, v in value.items()}
    return [_clean(v) for v in value] if isinstance(value, list) else value


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("optagent.prompts", ""),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        line=line,
        cell=cell,
        code=code,
        mark=_mark,
        evidence=_evidence,
        baseline=_baseline,
        effect=_effect,
        change=_change,
    )
    return environment.get_template("handoff.md.j2")


def _mark(record: Any) -> str:
    return "verified" if record.verified else "not verified"


def _evidence(evidence: Sequence[str]) -> str:
    return "; " + ", ".join(line(e) for e in evidence) if evidence else ""


def _baseline(baseline: Baseline) -> str:
    """The baseline in one line: what it gives, and with what."""
    words = [line(baseline.label)] if baseline.label else []
    if (found := baseline.measurement) is not None:
        interval = f" [{found.low:g}, {found.high:g}]" if found.low is not None and found.high is not None else ""
        unit = f" {line(found.unit)}" if found.unit else ""
        kind = "*simulated*, " if found.simulated else ""
        of = f" under {line(found.under.workload)}" if found.under is not None else ""
        words.append(
            f"{line(found.metric)} {found.value:g}{interval}{unit}{of} over {found.runs} runs ({kind}{_mark(found)})"
        )
    configuration = baseline.configuration
    at = f" at {line(configuration.revision[:12])}" if configuration.revision else ""
    words.append(f"environment {line(configuration.environment)}{at}: {_settings(configuration)}")
    return "; ".join(words)


def _settings(configuration: Configuration) -> str:
    words = flag_arguments(configuration.flags)
    words += [f"{k}={v}" for k, v in configuration.env.items()] + [f"file {name}" for name in configuration.files]
    return f"`{code(clip(' '.join(words)))}`" if words else "no settings"


def _change(change: Change) -> str:
    return f"`{code(clip(describe(change)))}`"


def clip(text: str, length: int = LONGEST) -> str:
    """Text for people in bounded length; the front matter has all of it."""
    return text if len(text) <= length else text[: length - 1] + "…"


def _effect(attempt: Attempt) -> str:
    if attempt.effect is None:
        return ""
    interval = ""
    if attempt.low is not None and attempt.high is not None:
        interval = f" ({attempt.low * 100:+.1f} to {attempt.high * 100:+.1f})"
    return f"{attempt.effect * 100:+.1f} %{interval}"
