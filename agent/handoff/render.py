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

if TYPE_CHECKING:
    from jinja2 import Template

_SURROGATE = re.compile("[\ud800-\udfff]")


def render_handoff(handoff: Handoff) -> str:
    """The handoff as markdown, which `read_handoff` reads back to the same handoff."""
    return _template().render(h=handoff, front_matter=front_matter(handoff)).rstrip("\n") + "\n"


def front_matter(handoff: Handoff) -> str:
    """The handoff as YAML, without what holds its default; what was read from a free-form document counts as data now."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    body = {"format": FORMAT, **to_body(replace(handoff, structured=True))}
    text: str = yaml.dump(
        _clean(body), Dumper=Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=10**9
    )
    return text


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
        what=_what,
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
        words.append(
            f"{line(found.metric)} {found.value:g}{interval}{unit} over {found.runs} runs ({kind}{_mark(found)})"
        )
    configuration = baseline.configuration
    settings = Change(dict(configuration.flags), dict(configuration.env), dict(configuration.files))
    at = f" at {line(configuration.revision[:12])}" if configuration.revision else ""
    words.append(f"environment {line(configuration.environment)}{at}: {_change(settings)}")
    return "; ".join(words)


def _change(change: Change) -> str:
    return f"`{code(describe(change))}`"


def _what(attempt: Attempt) -> str:
    if not attempt.change or attempt.change == attempt.title:
        return cell(attempt.title)
    return f"{cell(attempt.title, 60)}: {cell(attempt.change, 40)}"


def _effect(attempt: Attempt) -> str:
    if attempt.effect is None:
        return ""
    interval = ""
    if attempt.low is not None and attempt.high is not None:
        interval = f" ({attempt.low * 100:+.1f} to {attempt.high * 100:+.1f})"
    return f"{attempt.effect * 100:+.1f} %{interval}"
