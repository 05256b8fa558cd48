"""Named load shapes: what a workload's name stands for, and which names are slips of the keyboard.

The numbers are those that SGLang's own benchmarks and its cookbook use: ten requests one after the other, with a second
point of long prompts; at concurrency N at least five requests a client and never fewer than forty.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

SINGLE_STREAM, SINGLE_STREAM_LONG, SPECULATIVE = "single-stream", "single-stream-long", "speculative"
THROUGHPUT = re.compile(r"throughput-([1-9]\d*)")
EXAMPLE = "throughput-8"

NEAR = 0.9
"""Names that are more alike than this (difflib's ratio) differ by a slip: "single-steam" does, "single-stream-8k" not."""


def shape_of(name: object) -> dict[str, Any]:
    """The keys that a preset's name sets; empty for a name of the owner's own. Lengths in tokens."""
    if name == SINGLE_STREAM:
        return _shape(1024, 512, num_prompts=10, clients=1, warmups=3)
    if name == SINGLE_STREAM_LONG:
        return _shape(8192, 256, num_prompts=5, clients=1, warmups=3)
    if name == SPECULATIVE:
        return _shape(1024, 512, num_prompts=16, clients=1, warmups=3) | {"dataset": "custom"}
    if (clients := concurrency_of(name)) is not None:
        return _shape(1024, 1024, num_prompts=max(40, 5 * clients), clients=clients, warmups=clients)
    return {}


def concurrency_of(name: object) -> int | None:
    """N of "throughput-N", None for every other name."""
    found = THROUGHPUT.fullmatch(name) if isinstance(name, str) else None
    return int(found[1]) if found else None


def meant_by(name: str) -> str | None:
    """The preset that a misspelt name means; None when it is a preset, or a name of the owner's own."""
    if shape_of(name):
        return None
    plain = name.strip().lower()
    number = re.search(r"[1-9]\d*", plain)
    throughput = f"throughput-{number[0]}" if number else EXAMPLE
    if plain.startswith("throughput-"):
        return throughput
    near = get_close_matches(plain, [SINGLE_STREAM, SINGLE_STREAM_LONG, SPECULATIVE, throughput, "throughput"], 1, NEAR)
    return (throughput if near[0] == "throughput" else near[0]) if near else None


def _shape(input_len: int, output_len: int, *, num_prompts: int, clients: int, warmups: int) -> dict[str, Any]:
    return {
        "input_len": input_len,
        "output_len": output_len,
        "num_prompts": num_prompts,
        "max_concurrency": clients,
        "warmup_requests": warmups,
    }
