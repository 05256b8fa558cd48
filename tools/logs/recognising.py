"""Whether a file is the log of an SGLang server at all: one line that such a server, or its start, writes is enough."""

from __future__ import annotations

import re

from optagent.tools.logs.startup import MARKS

WRITTEN = re.compile(
    b"|".join(
        (
            rb"\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d",  # SGLang's own prefix
            rb"server_args ?=|Server args:|(?:Decode|Prefill) batch",
            *(re.escape(mark.encode()) for mark, _ in MARKS),
            rb"Traceback \(most recent call last\)|\.py:\d+: \w*Warning: |(?m:^usage: )|No module named ",
            rb"(?m:^\+ )\w|launch_server\.py|(?m:^)\S*python\S* -m sglang",  # the shell that starts it
            rb"(?m:^)(?:INFO|WARNING|ERROR|CRITICAL)(?::[\w.]+:| +\d\d-\d\d )",  # Python's logging
            rb"(?m:^)\[rank\d+\]:|(?m:^)\[?[WEFI]\d{4} \d\d:|NCCL (?:INFO|WARN|version)",  # torch and NCCL
            rb"\d{1,3}%(?: Completed)? ?(?:\|[^|\n]{0,200})?\| ?[\d.]+[KMGTk]?/[\d.]+[KMGTk]? ",  # a bar
        )
    )
)


def written_by_a_server(data: bytes) -> bool:
    """Whether one of these lines is a server's. Programs hold such words too, between bytes that no line has."""
    return any(b"\0" not in _line_at(data, found.start()) for found in WRITTEN.finditer(data))


def _line_at(data: bytes, at: int) -> bytes:
    end = data.find(b"\n", at)
    return data[data.rfind(b"\n", 0, at) + 1 : end if end >= 0 else len(data)]
