"""Credentials go, ordinary numbers, hashes and flags stay."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from optagent.tools.redact import redact, redact_json

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA+/=\nq0w=\n-----END RSA PRIVATE KEY-----"

SECRETS = {
    "sk-ant-api03-" + "aB3_-" * 10: "[redacted]",
    "key sk-" + "a1B2" * 12 + ".": "key [redacted].",
    "sk-proj-" + "a1B2" * 12: "[redacted]",
    "hf_" + "aBcD" * 9: "[redacted]",
    "ghp_" + "a1" * 18: "[redacted]",
    "gho_" + "a1" * 18: "[redacted]",
    "github_pat_" + "a1_" * 18: "[redacted]",
    "id AKIAIOSFODNN7EXAMPLE;": "id [redacted];",
    "xoxb-123456789012-abcdefABCDEF": "[redacted]",
    "AIza" + "Sy_-a" * 7: "[redacted]",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl": "[redacted]",
    f"before {PEM} after": "before [redacted] after",
    repr(PEM): "'[redacted]'",
    "-----BEGIN PRIVATE KEY-----\nMIIEcut off": "[redacted]",
    "Authorization: Bearer abc": "Authorization: [redacted]",
    "curl -H 'Authorization: Basic dXNlcjpwYXNz' http://x": "curl -H 'Authorization: [redacted]' http://x",
    "{'authorization': 'Bearer abc'}": "{'authorization': '[redacted]'}",
    "sent Bearer abcd1234 to": "sent Bearer [redacted] to",
    "https://user:pass@host:8080/path": "https://[redacted]@host:8080/path",
    "git clone https://x:p@ss@host/r.git": "git clone https://[redacted]@host/r.git",
    "ANTHROPIC_API_KEY=abc sglang": "ANTHROPIC_API_KEY=[redacted] sglang",
    "export HF_TOKEN='a b' # x": "export HF_TOKEN='[redacted]' # x",
    "AWS_SECRET_ACCESS_KEY=abc/def+ghi": "AWS_SECRET_ACCESS_KEY=[redacted]",
    "PGPASSWORD=hunter2 psql": "PGPASSWORD=[redacted] psql",
    "password=1234&x=1": "password=[redacted]&x=1",
    'password: "a \\"quoted\\" one", next': 'password: "[redacted]", next',
    '{"api_key": "abc", "n": 1}': '{"api_key": "[redacted]", "n": 1}',
    r"{\"api_key\": \"abc\", \"n\": 1}": r"{\"api_key\": \"[redacted]\", \"n\": 1}",
    "ServerArgs(api_key='abc', tp_size=2)": "ServerArgs(api_key='[redacted]', tp_size=2)",
    "--api-key abc --port 30000": "--api-key [redacted] --port 30000",
    "['--api-key', 'abc', '--port', '30000']": "['--api-key', '[redacted]', '--port', '30000']",
    "--hf-token=abc": "--hf-token=[redacted]",
    "GET /v1?token=abc&n=1": "GET /v1?token=[redacted]&n=1",
    "token: 0a1b2c3d4e": "token: [redacted]",
}

ORDINARY = [
    "max_tokens: 5",
    '"max_tokens": 5, "min_new_tokens": 8',
    "total_output_tokens=123456",
    "Prefill batch, #new-seq: 1, #new-token: 64, #cached-token: 0, token usage: 0.42, #queue-req: 0",
    "gen throughput (token/s): 1234.56",
    "--tokenizer-path /models/x --tokenizer-mode auto --max-prefill-tokens 16384",
    "max_total_num_tokens=865104, chunked_prefill_size=8192",
    "api_key=None, admin_api_key=None, tokenizer_path='/models/x'",
    "eos_token='</s>', pad_token_id=0, next_token: 5",
    "revision 6d0a0904511cbe6d0a0904511cbe6d0a0904511c",
    "sha256:" + "0123456789abcdef" * 4,
    "Bearer token authentication is off",
    "http://127.0.0.1:30000/v1/models user@host",
    "ssh://git@github.com/org/repo.git",
    "disk-usage-of-the-whole-system-2026 risk-adjusted-throughput-per-gpu-2",
    "token = tokenizer.decode(ids)",
    "+    def __init__(self, api_key: Optional[str] = None, password: str = get_password()):",
    "api_key=server_args.api_key",
    "unexpected token: identifier",
    "2026-01-02T03:04:05+00:00 pid=4711",
]


@pytest.mark.parametrize(("text", "expected"), SECRETS.items(), ids=range(len(SECRETS)))
def test_a_credential_is_replaced_and_its_name_kept(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    assert redact(text) == text


pieces = st.sampled_from(
    [*SECRETS, *ORDINARY, "://a:", "@", "token=", "secret:", "password=", "--api-key ", "Bearer ", "[redacted]", "eyJ",
     '"', "'", "\\", "\n", " ", ",", "=", "/", "-", "_", "None", "a(", "x1" * 8]
)  # fmt: skip


@given(st.lists(pieces | st.text(max_size=4), max_size=8).map("".join))
@example("://x:secret=b/c,d@")
@settings(max_examples=300, deadline=None)
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@given(
    st.sampled_from([text for text in SECRETS if "\n" not in text and "'" not in text]), st.sampled_from(["\n", " "])
)
def test_a_credential_is_found_wherever_it_stands(text: str, space: str) -> None:
    surrounded = f"line one{space}{text}{space}line three"
    assert redact(surrounded) == f"line one{space}{SECRETS[text]}{space}line three"


def test_json_values_under_a_secret_name_go_whole() -> None:
    value = {
        "apiKey": "abc",
        "credentials": {"user": "me", "n": [1]},
        "headers": [{"X-Api-Key": "abc"}, {"authorization": "Bearer abc"}],
        "env": {"HF_TOKEN": "abc", "db.password": 12},
        "command": ["sglang", "--api-key", "abc", "--tp-size", 2, "--model-path", "/m"],
        "text": "password=abc",
    }
    assert redact_json(value) == {
        "apiKey": "[redacted]",
        "credentials": "[redacted]",
        "headers": [{"X-Api-Key": "[redacted]"}, {"authorization": "[redacted]"}],
        "env": {"HF_TOKEN": "[redacted]", "db.password": "[redacted]"},
        "command": ["sglang", "--api-key", "[redacted]", "--tp-size", 2, "--model-path", "/m"],
        "text": "password=[redacted]",
    }


@pytest.mark.parametrize(
    "value",
    [
        {"api_key": None, "password": "", "secret": False},
        {"max_tokens": 5, "total_output_tokens": 12, "token": "Paris", "eos_token": "</s>", "key": "launch-1"},
        {"flags": {"tokenizer-path": "/m", "max-prefill-tokens": 16384, "tp-size": 2}},
        {"OUT_TOKEN": 7, "revision": "6d0a0904511cbe6d0a0904511cbe6d0a0904511c"},
        [],
        3.5,
        None,
    ],
)
def test_ordinary_json_stays(value: Any) -> None:
    assert redact_json(value) == value


@given(
    st.recursive(
        st.none() | st.integers() | pieces,
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["api_key", "token", "x", "HF_TOKEN"]), inner),
        max_leaves=8,
    )
)
@settings(deadline=None)
def test_redacting_json_twice_is_redacting_once(value: Any) -> None:
    once = redact_json(value)
    assert redact_json(once) == once


@pytest.mark.parametrize(
    "piece",
    ["sk-", "eyJ", "eyJaaaaaaaa.", "http://a:", "--a-", "password", "secret: \"", "token=", "bearer ", "\\", "a", " ",
     "-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "authorization: ", "api_key \\\\", "--a--api-key ", "A_TOKEN"],
)  # fmt: skip
def test_a_megabyte_of_anything_is_done(piece: str) -> None:
    """Not timed: quadratic patterns would take minutes here."""
    assert redact(piece * (1_000_000 // len(piece)))
