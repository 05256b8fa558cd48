"""What one launch says: its answers word by word, and their log-probabilities when they are asked for."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from optagent.tools.simulator.arithmetic import Arithmetic, arithmetic_of, batch_choice, choices_of
from optagent.tools.simulator.language import WORD_IDS, greedy, log_probabilities, prefix, sampled
from optagent.tools.simulator.noise import generator
from optagent.tools.simulator.setup import Setup
from optagent.tools.simulator.surroundings import Surroundings
from optagent.tools.simulator.words import WORDS

DEFAULT_TEMPERATURE = 1.0
"""SGLang's, for requests that give none."""

Scored = tuple[float | None, int]
"""A token's log-probability, None for the first of a prompt that is read, and its id."""


@dataclass(frozen=True)
class Scores:
    """What was read of the prompt, and what was answered."""

    prompt: list[Scored]
    answer: list[Scored]


@dataclass(frozen=True)
class Said:
    """An answer, a word and an id for each token."""

    words: list[str]
    token_ids: list[int]
    scores: Scores | None = None


@dataclass
class Speaker:
    """The model as one launch computes it."""

    around: Surroundings
    setup: Setup
    fields: Mapping[str, Any]
    _drawn: Counter[int] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def say(
        self, prompt: Sequence[int], count: int, temperature: float, *, scored_from: int | None, shared: bool
    ) -> Said:
        """`count` tokens after `prompt`. From the prompt's token `scored_from` on there are log-probabilities: -1 is for
        those of the answer only, None for none. `shared` tells whether other requests were in the same batches."""
        arithmetic = self._together if shared else self._alone
        state = prefix(self._model, prompt)
        if temperature > 0:
            places = sampled(state, count, temperature, self._draws(state))
        else:
            places = greedy(state, count, arithmetic)
        ids = [WORD_IDS[place] for place in places]
        scores = None
        if scored_from is not None:
            values = log_probabilities(state, ids, arithmetic)
            scores = Scores(self._read(prompt, scored_from, arithmetic), list(zip(values, ids, strict=True)))
        return Said([WORDS[place] for place in places], ids, scores)

    def _read(self, prompt: Sequence[int], start: int, arithmetic: Arithmetic) -> list[Scored]:
        """The first token that is read has no probability, as SGLang reports it."""
        if not 0 <= start < len(prompt):
            return []
        read = prompt[start + 1 :]
        values = log_probabilities(prefix(self._model, prompt[: start + 1]), read, arithmetic)
        return [(None, prompt[start]), *zip(values, read, strict=True)]

    def _draws(self, state: int) -> random.Random:
        """The draws of the next answer to a prompt: others each time it is asked."""
        with self._lock:
            self._drawn[state] += 1
            return generator("sampling", self.around.scenario.seed, self.around.launch, state, self._drawn[state])

    @property
    def _model(self) -> str:
        return self.around.scenario.model.name

    @cached_property
    def _alone(self) -> Arithmetic:
        return self._arithmetic(shared=False)

    @cached_property
    def _together(self) -> Arithmetic:
        return self._arithmetic(shared=True)

    def _arithmetic(self, shared: bool) -> Arithmetic:
        return arithmetic_of([*choices_of(self.setup, self.fields, self.around), batch_choice(self.around, shared)])
