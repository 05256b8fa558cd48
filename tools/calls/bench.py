"""Measuring a server, and sampling what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from optagent.tools.calls.base import EffectRequest, Request, Result
from optagent.tools.calls.workloads import SINGLE_STREAM, SPECULATIVE, meant_by, shape_of

MOST_OPENINGS = 64


class Workload(Request):
    """A load shape, in the words of `sglang.bench_serving`. Lengths are in tokens.

    A `name` that is a preset ("single-stream", "single-stream-long", "throughput-N", "speculative") sets what is not
    given; every other name is the owner's own. `dataset` "random-ids" needs nothing; "custom" reads `prompts`, a JSONL
    file of the campaign, one {"prompt": str} a line.
    """

    name: str = SINGLE_STREAM
    dataset: Literal["random-ids", "custom"] = "random-ids"
    prompts: str | None = Field(None, validate_default=True)
    input_len: int = Field(1024, gt=0)
    output_len: int = Field(512, gt=0)
    num_prompts: int = Field(10, gt=0)
    max_concurrency: int = Field(1, gt=0)
    warmup_requests: int = Field(3, ge=0)
    flush_cache: bool = True
    seed: int = 42

    @model_validator(mode="before")
    @classmethod
    def _take_what_the_name_says(cls, given: Any) -> Any:
        return {**shape_of(given.get("name", SINGLE_STREAM)), **given} if isinstance(given, Mapping) else given

    @field_validator("name")
    @classmethod
    def _is_not_misspelt(cls, name: str) -> str:
        if meant := meant_by(name):
            raise ValueError(f"expected {meant}, or a name of your own that is not so near to it")
        return name

    @field_validator("prompts")
    @classmethod
    def _are_there_when_needed(cls, prompts: str | None, info: ValidationInfo) -> str | None:
        if prompts is None and info.data.get("name") == SPECULATIVE:
            raise ValueError('"speculative" needs a file of real prompts: random tokens are hardly ever accepted')
        if prompts is None and info.data.get("dataset") == "custom":
            raise ValueError('dataset "custom" needs a JSONL file of the campaign, one {"prompt": "..."} a line')
        return prompts

    @model_serializer(mode="wrap")
    def _with_what_the_name_would_set_otherwise(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What equals a field's own default may be left out; where the name would set something else, it may not."""
        data: dict[str, Any] = handler(self)
        for key, value in shape_of(self.name).items():
            if getattr(self, key) != value:
                data.setdefault(key, getattr(self, key))
        return data


class Bench(EffectRequest):
    """One run of `workload` against the server at `url`. `seed` fixes the prompts; `result_file` keeps every key.

    With `discard_first` the whole load is put on once before, with other prompts, and that result counts for nothing:
    the first cell after a launch is cold.
    """

    run: str
    url: str
    workload: Workload
    seed: int
    result_file: str
    discard_first: bool = False


class BenchRun(Result):
    """One benchmark run. `metrics` has the numeric keys of `bench_serving`'s result line with its units in the names
    (`median_tpot_ms`, `output_throughput` in tok/s, `duration` in s, ...); a value that was not measured is absent.

    `valid` is False when the run does not count, and `invalid_because` says why. `cache` is the prefix cache's state when
    the measured requests began, `cached_share` the share of prompt tokens that came from it (None: not known).
    `repetitive` is the share of answers that repeat one short group of words over and over. `openings` has a hash of how
    each of the first answers begins, in the order of the prompts ("": there is none); it is empty when the answers are not
    known. `warnings` is what looks odd and does not make the run invalid.
    """

    valid: bool
    invalid_because: list[str] = []
    metrics: dict[str, float] = {}
    result_file: str = ""
    elapsed_s: float | None = None
    cache: Literal["flushed", "kept", "unknown"] = "unknown"
    cached_share: float | None = None
    repetitive: float | None = None
    openings: list[str] = Field([], max_length=MOST_OPENINGS)
    warnings: list[str] = []
    simulated: bool = False
