"""Takes credentials out of text and JSON before they are written anywhere.

Every pattern takes linear time on any input: what follows a repeated class is never part of that class, and a match
starts only at a literal. Patterns are compiled at first use, which keeps the import cheap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

REDACTED = "[redacted]"

_MOST_PASSES = 5
"""A replacement may uncover another one; more passes than this are never needed by text that was not built for it."""

_SECRET_NAME = (
    r"(?i:api[_-]?key|secret[_-]?access[_-]?key|secret[_-]?key|private[_-]?key|access[_-]?key|client[_-]?secret"
    r"|secret|password|passwd|passphrase|credentials?)"
)
_TOKEN_OWNER = (
    r"(?i:access|auth|api|bearer|refresh|session|security|secret|personal|bot|hf|hub|hugging[_-]?face(?:[_-]?hub)?"
    r"|github|gh|gitlab|slack|wandb|anthropic|openai)"
)
_OWNED_TOKEN = rf"{_TOKEN_OWNER}[_-]?(?i:token)"
_TOKEN_VARIABLE = r"[A-Z0-9]_TOKEN"

_TOKEN_SHAPES = r"""(?x)(?<![A-Za-z0-9])(?:
    sk-(?:ant|proj|svcacct|admin|or)-[A-Za-z0-9_-]{8,}
  | sk-(?=[a-z_-]{0,60}[A-Z0-9])[A-Za-z0-9_-]{20,}
  | hf_[A-Za-z0-9]{20,}
  | gh[pousr]_[A-Za-z0-9]{20,}
  | github_pat_[A-Za-z0-9_]{20,}
  | glpat-[A-Za-z0-9_-]{16,}
  | nvapi-[A-Za-z0-9_-]{20,}
  | pypi-AgE[A-Za-z0-9_-]{20,}
  | (?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])
  | xox[abeoprs]-[A-Za-z0-9-]{10,}
  | AIza[A-Za-z0-9_-]{30,}
  | eyJ[A-Za-z0-9]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?
)"""
"""Credentials that are recognised by their own look, as their issuers document it."""

_PRIVATE_KEY = (
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[A-Za-z0-9+/=\\\s,:.]|-(?!----))*"
    r"(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
)
_QUOTE = r"""(?:\\{0,3}["'])?"""
_ASSIGN = rf"{_QUOTE}[ \t]{{0,4}}[=:][ \t]{{0,4}}{_QUOTE}"
_AS_NEXT_WORD = rf"{_QUOTE}(?:[ \t]{{0,4}},[ \t]{{0,4}}|[ \t]{{1,4}}){_QUOTE}"
_NEW = r"(?!\[redacted\])"
_NO_NUMBER = r"(?![-+]?\d+(?:\.\d+)?(?![\w.+/=~-]))"
_NOT_CODE = (
    r"(?!(?i:none|null|true|false|str)(?![\w-])|\$|(?:self|os|args|server_args|config|cfg)\."
    r"|[A-Za-z_][\w.]{0,60}[(\[])"
)
_QUOTED = r"""(?<=\\["'])[^"'\\\n]+|(?<=[^\\]")(?:[^"\\\n]|\\.)+|(?<=[^\\]')(?:[^'\\\n]|\\.)+"""
_VALUE = rf"""(?:{_QUOTED}|(?<!["']){_NOT_CODE}[^\s"'&;,()<>}}\]\\]+)"""
_RANDOM_LOOKING = r"(?=[A-Za-z_~+/=.-]{0,80}\d)[\w~+/=.-]{8,}"


class _Rule(NamedTuple):
    """What to replace by what. It is tried only where one of `hints` stands in the text's lower case: that is what
    makes ordinary text cheap."""

    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    replacement: str


@cache
def _rules() -> tuple[_Rule, ...]:
    """The rules in the order in which they are applied."""
    bare_token = r"(?<![\w#.-])(?i:token)"
    flag = rf"--(?:[a-z0-9]+-){{0,5}}(?:{_SECRET_NAME}|(?<=--)token|{_OWNED_TOKEN})"
    scheme = r"(?:(?i:bearer|basic|token|digest)[ \t]{1,4})?+"
    names = ("key", "secret", "pass", "credential")
    shapes = ("sk-", "hf_", "gh", "github_", "glpat-", "nvapi-", "pypi-", "akia", "asia", "xox", "aiza", "eyj")
    kept = rf"\g<1>{REDACTED}"
    table = (
        (("private key",), _PRIVATE_KEY, REDACTED),
        (("://",), r"""(://)[^\s/@:"'<>]*:[^\s/"'<>]*@""", rf"\g<1>{REDACTED}@"),
        (("authorization",), rf"((?i:authorization){_ASSIGN}){_NEW}{scheme}{_NEW}{_VALUE}", kept),
        (names, rf"({_SECRET_NAME}{_ASSIGN}){_NEW}{_VALUE}", kept),
        (
            ("token",),
            rf"((?:{_OWNED_TOKEN}|{_TOKEN_VARIABLE}|[?&]token){_ASSIGN}){_NEW}{_NO_NUMBER}{_VALUE}",
            kept,
        ),
        (("token",), rf"({bare_token}{_ASSIGN}){_NEW}{_NO_NUMBER}{_RANDOM_LOOKING}", kept),
        (("--",), rf"({flag}{_AS_NEXT_WORD}){_NEW}(?!-){_NO_NUMBER}{_VALUE}", kept),
        (("bearer",), rf"((?i:\bbearer)[ \t]{{1,4}})(?:{_RANDOM_LOOKING}|[\w~+/=.-]{{16,}})", kept),
        (shapes, _TOKEN_SHAPES, REDACTED),
    )
    return tuple(_Rule(hints, re.compile(pattern), replacement) for hints, pattern, replacement in table)


def redact(text: str) -> str:
    """`text` with every credential replaced by `[redacted]`; the name it stood under is kept."""
    for _ in range(_MOST_PASSES):
        before, lower = text, text.lower()
        for rule in _rules():
            if any(hint in lower for hint in rule.hints):
                text = rule.pattern.sub(rule.replacement, text)
        if text == before:
            break
    return text


@cache
def _secret_key() -> re.Pattern[str]:
    return re.compile(rf"(?:{_SECRET_NAME}|{_OWNED_TOKEN}|{_TOKEN_VARIABLE}|(?i:authorization))$")


@cache
def _random_looking() -> re.Pattern[str]:
    return re.compile(_RANDOM_LOOKING)


def _named_secret(key: str, value: Any) -> bool:
    """Whether a value that stands under `key` is a credential. Unset values and counts of tokens are none."""
    if value is None or isinstance(value, bool) or value in ("", REDACTED):
        return False
    name = key.rsplit(".", 1)[-1].lstrip("-")
    if name.lower() == "token":
        return isinstance(value, str) and _random_looking().fullmatch(value) is not None
    if isinstance(value, int | float) and name.lower().endswith("token"):
        return False
    return _secret_key().search(name) is not None


def redact_json(value: Any) -> Any:
    """A copy of a JSON value with its credentials replaced: by their look in any text, and whole under a name that
    says so, be it a key of an object or a flag that stands before its value in a list."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {k: REDACTED if _named_secret(str(k), v) else redact_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        flags = [None, *value[:-1]] if value else []
        return [
            REDACTED
            if isinstance(flag, str) and flag.startswith("--") and _named_secret(flag, item)
            else redact_json(item)
            for flag, item in zip(flags, value, strict=True)
        ]
    return value
