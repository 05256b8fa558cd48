"""What the simulated model says, and how far apart two configurations are in it."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.tools.simulator.arithmetic import CORRUPT, Arithmetic, arithmetic_of, batch_choice, choices_of
from optagent.tools.simulator.flags import parse
from optagent.tools.simulator.language import (
    WORD_IDS,
    candidates,
    greedy,
    log_probabilities,
    prefix,
    sampled,
)
from optagent.tools.simulator.noise import generator, scramble
from optagent.tools.simulator.resolve import resolve
from optagent.tools.simulator.scenario import Faults, Injected, load, packaged
from optagent.tools.simulator.surroundings import SourceSeen, Surroundings
from optagent.tools.simulator.words import WORDS, count_tokens, pieces

SCENARIO = load(packaged("kimi-k2.5-8x-rtx-pro-6000"))
BASELINE = ("--model-path", "m", "--tp-size", "8")
EAGLE = ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "d")
DRAWS = generator("tests")
TEXTS = [[DRAWS.randrange(65536) for _ in range(200)] for _ in range(24)]
PROMPTS = [[DRAWS.randrange(65536) for _ in range(30)] for _ in range(300)]
ANSWER = 128


def launch_of(
    *flags: str,
    environment: str = "cu128",
    launch: str = "a",
    faults: Faults = SCENARIO.faults,
    shared: bool = False,
    **env: str,
) -> Arithmetic:
    versions = SCENARIO.environments[environment]
    around = Surroundings(replace(SCENARIO, faults=faults), None, versions, env, SourceSeen(), launch)
    fields = parse([*BASELINE, *flags], versions["sglang"])
    return arithmetic_of([*choices_of(resolve(fields, around), fields, around), batch_choice(around, shared)])


def divergence(ours: Arithmetic, theirs: Arithmetic) -> float:
    """The k3 estimate of the KL per token over the texts, in nats."""
    start = prefix("m", ())
    both = [(log_probabilities(start, text, ours), log_probabilities(start, text, theirs)) for text in TEXTS]
    moved = [one - other for mine, yours in both for one, other in zip(mine, yours, strict=True)]
    return fmean(math.expm1(d) - d for d in moved)


def partings(ours: Arithmetic, theirs: Arithmetic) -> list[int]:
    """Where the greedy answers to the prompts part, of those that do."""
    found = []
    for prompt in PROMPTS:
        state = prefix("m", prompt)
        both = zip(greedy(state, ANSWER, ours), greedy(state, ANSWER, theirs), strict=True)
        found += [next((at for at, (one, other) in enumerate(both) if one != other), ANSWER)]
    return [at for at in found if at < ANSWER]


SAME = {
    "nothing": launch_of(),
    "another launch": launch_of(launch="b"),
    "memory": launch_of("--mem-fraction-static", "0.8"),
    "running requests": launch_of("--max-running-requests", "16"),
    "captured batches": launch_of("--cuda-graph-max-bs", "64"),
    "the default by name": launch_of("--attention-backend", "triton", "--moe-runner-backend", "marlin", "--dtype", "bfloat16"),
    "another launch that is corrupt": launch_of(faults=Faults(injected=(Injected("b", "corrupt"),))),
}  # fmt: skip
ORDER = {
    "attention": launch_of("--attention-backend", "flashinfer"),
    "experts": launch_of("--ep-size", "8"),
    "ranks": launch_of("--tp-size", "4"),
    "NCCL": launch_of(NCCL_ALGO="Ring"),
    "CUDA": launch_of(environment="cu13"),
    "compiled": launch_of("--enable-torch-compile"),
    "speculation": launch_of(*EAGLE),
    "in a batch": launch_of(shared=True),
}
PRECISION = {
    "KV cache": launch_of("--kv-cache-dtype", "fp8_e4m3"),
    "weights": launch_of("--quantization", "awq"),
    "activations": launch_of("--dtype", "float16"),
    "acceptance": launch_of(*EAGLE, "--speculative-accept-threshold-single", "0.5"),
}
WRONG = {
    "random weights": launch_of("--load-format", "dummy"),
    "corrupt": launch_of(faults=Faults(injected=(Injected("a", "corrupt"),))),
}


@pytest.mark.parametrize("name", SAME)
def test_what_changes_no_number(name: str) -> None:
    assert SAME[name] == launch_of()


@pytest.mark.parametrize("name", ORDER)
def test_another_order_of_sums_moves_little(name: str) -> None:
    assert 1e-5 < divergence(ORDER[name], launch_of()) < 1.5e-4
    parted = partings(ORDER[name], launch_of())
    assert 0 < len(parted) < 0.1 * len(PROMPTS)


def test_another_moe_kernel_moves_as_much_as_measured() -> None:
    assert divergence(launch_of("--moe-runner-backend", "triton"), launch_of()) == pytest.approx(4e-4, rel=0.3)


@pytest.mark.parametrize("name", PRECISION)
def test_less_precision_moves_more(name: str) -> None:
    reference = launch_of(*EAGLE) if name == "acceptance" else launch_of()
    assert 0.02 < divergence(PRECISION[name], reference) < 0.05
    parted = partings(PRECISION[name], reference)
    assert 0.4 * len(PROMPTS) < len(parted) < 0.9 * len(PROMPTS)
    assert sum(at < 4 for at in parted) < 0.1 * len(PROMPTS)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values_agree_with_nothing(name: str) -> None:
    assert divergence(WRONG[name], launch_of()) > 1
    parted = partings(WRONG[name], launch_of())
    assert len(parted) > 0.98 * len(PROMPTS)
    assert sum(at < 4 for at in parted) > 0.2 * len(PROMPTS)


def test_launches_agree_but_for_who_shares_their_batches() -> None:
    together = [launch_of(launch=name, shared=True) for name in ("a", "b")]
    assert together[0] == launch_of(shared=True)
    assert 1e-5 < divergence(*together) < 1e-4


TOKENS = st.lists(st.integers(0, 200_000), max_size=20)
WIDTHS = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.floats(0, 4 * CORRUPT)), max_size=5)


@given(TOKENS, TOKENS, TOKENS, WIDTHS)
def test_a_token_depends_on_what_is_before_it(
    read: list[int], said: list[int], more: list[int], parts: list[tuple[int, float]]
) -> None:
    arithmetic = Arithmetic(tuple(parts))
    whole = log_probabilities(prefix("m", read), said + more, arithmetic)
    assert whole[: len(said)] == log_probabilities(prefix("m", read), said, arithmetic)
    assert whole[len(said) :] == log_probabilities(prefix("m", read + said), more, arithmetic)
    assert all(math.isfinite(value) and value <= 0 for value in whole)


@given(TOKENS, st.integers(0, 40), st.integers(0, 40), WIDTHS)
def test_a_greedy_answer_goes_on_as_it_began(
    read: list[int], few: int, more: int, parts: list[tuple[int, float]]
) -> None:
    arithmetic, state = Arithmetic(tuple(parts)), prefix("m", read)
    whole = greedy(state, few + more, arithmetic)
    begun = greedy(state, few, arithmetic)
    assert whole[:few] == begun
    then = prefix("m", [*read, *(WORD_IDS[place] for place in begun)])
    assert whole[few:] == greedy(then, more, arithmetic)


@given(st.integers(0, 2**64 - 1), WIDTHS)
def test_the_greedy_word_is_the_more_probable_of_the_candidates(state: int, parts: list[tuple[int, float]]) -> None:
    arithmetic = Arithmetic(tuple(parts))
    near = candidates(scramble(state))
    (chosen,) = greedy(state, 1, arithmetic)
    assert chosen in (near.first, near.second)
    ((first,), (second,)) = (
        log_probabilities(state, [WORD_IDS[place]], arithmetic) for place in (near.first, near.second)
    )
    assert (first >= second) if chosen == near.first else (second >= first)


@given(st.integers(0, 2**64 - 1), WIDTHS)
def test_a_shift_stays_in_its_bounds(state: int, parts: list[tuple[int, float]]) -> None:
    arithmetic = Arithmetic(tuple(parts))
    assert abs(arithmetic.shift(state, 7)) <= arithmetic.largest_shift + 1e-9


def test_greedy_words_are_probable_and_texts_less() -> None:
    state = prefix("m", PROMPTS[0])
    answer = [WORD_IDS[place] for place in greedy(state, 500, launch_of())]
    assert -0.6 < fmean(log_probabilities(state, answer, launch_of())) < -0.1
    assert -3.0 < fmean(log_probabilities(state, TEXTS[0], launch_of())) < -1.0


@pytest.mark.parametrize(("temperature", "low", "high"), [(0.05, 0.9, 1.0), (1.0, 0.6, 0.9), (20.0, 0.0, 0.6)])
def test_temperature_moves_away_from_the_first_candidate(temperature: float, low: float, high: float) -> None:
    drawn = [sampled(prefix("m", prompt), 1, temperature, DRAWS)[0] for prompt in PROMPTS]
    first = [candidates(scramble(prefix("m", prompt))).first for prompt in PROMPTS]
    assert low <= fmean(one == other for one, other in zip(drawn, first, strict=True)) <= high


def test_every_word_has_an_id_of_its_own() -> None:
    assert len(set(WORD_IDS)) == len(WORDS)


@given(st.text(max_size=50))
def test_a_text_is_cut_into_its_tokens(text: str) -> None:
    assert "".join(pieces(text)) == text
    assert len(pieces(text)) == count_tokens(text)
