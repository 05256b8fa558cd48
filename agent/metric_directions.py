"""Where better lies for a metric, by its name: the keys of `bench_serving`'s results, and the memory of a GPU."""

from __future__ import annotations

LESS_IS_BETTER = ("_ms", "duration", "gpu_memory_gb")
MORE_IS_BETTER = ("throughput", "goodput", "_per_s", "completed", "accept_length", "slo_attainment")


def direction_of(metric: str) -> str | None:
    """ "max" or "min"; None for a metric that is not known."""
    if metric.endswith(LESS_IS_BETTER):
        return "min"
    return "max" if metric.endswith(MORE_IS_BETTER) else None
