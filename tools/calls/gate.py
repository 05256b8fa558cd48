"""Asking a server whether what it says is still right. All it said goes to a file; what comes back is small."""

from __future__ import annotations

from optagent.tools.calls.base import EffectRequest, Result


class Examine(EffectRequest):
    """Greedy answers to `prompts`, `max_tokens` each, first one at a time and then `concurrency` at a time, and the
    log-probabilities of `texts` as the server reads them. All of it goes to the new `file`.

    The prefix cache is emptied before each of the two passes; SGLang's own accept length counts from there.
    `references` are files of earlier examinations with the same questions, to be compared with.
    """

    url: str
    prompts: list[str]
    texts: list[str] = []
    max_tokens: int
    concurrency: int = 1
    file: str
    references: list[str] = []


class Pass(Result):
    """All prompts asked once. `problems` are the first few of what went wrong, in words.

    Counts of answers: `failed` (an error instead of an answer), `empty`, `short` (fewer tokens than asked although it
    ended by length), `stopped` (ended by themselves before the length), `repetitive` (one short group of tokens over and
    over). `latency_s` is the median of one answer (of a simulated server in its virtual time).
    """

    concurrency: int
    problems: list[str] = []
    failed: int = 0
    empty: int = 0
    short: int = 0
    stopped: int = 0
    repetitive: int = 0
    tokens: int = 0
    latency_s: float | None = None


class Agreement(Result):
    """The answers of one pass held against the same pass of the reference, as shares between 0 and 1.

    `exact`: the same token for token; `early`: parting within the first four tokens; `prefix`: mean share of the
    reference's answer that is the same from its start; `finish`: ending for another reason; `length`: output tokens,
    ours over the reference's. Prompts that one of them did not answer are left out. Words stand in for tokens where a
    server does not tell them.
    """

    concurrency: int
    exact: float
    early: float
    prefix: float
    finish: float
    length: float


class Comparison(Result):
    """An examination held against an earlier one. What could not be compared is None, and `problem` says why; what it
    names may also be a few of many texts or answers, the others being compared all the same.

    Over `scored` tokens of the texts, read by both, with d = log p(ours) - log p(reference): `kl` is the mean of
    exp(d) - 1 - d in nats a token (the k3 estimate), `far` the share of tokens with |d| > 1, `shift` the mean of d.
    `decode_kl` is the same estimate over the generated tokens up to where the answers part.
    """

    reference: str
    agreement: list[Agreement] = []
    kl: float | None = None
    far: float | None = None
    shift: float | None = None
    scored: int = 0
    decode_kl: float | None = None
    problem: str | None = None


class Examined(Result):
    """What an examination found. `variety` is the share of different answers among several that were drawn at
    temperature 1 for one prompt; `accept_length` the server's own mean, None without speculation. `problem` says why
    nothing could be asked."""

    passes: list[Pass] = []
    comparisons: list[Comparison] = []
    accept_length: float | None = None
    variety: float | None = None
    file: str = ""
    problem: str | None = None
    simulated: bool = False


class Evaluate(EffectRequest):
    """Let the server solve `examples` tasks of `data` (GSM8K as JSON lines: question, answer) with SGLang's own
    evaluation, `max_tokens` each at most; the first five of the file are shown with their answers. Which it solved goes
    to `file`; `reference` is the file of an earlier evaluation of the same tasks."""

    url: str
    data: str
    examples: int
    threads: int = 8
    max_tokens: int = 2048
    file: str
    reference: str | None = None


class Evaluated(Result):
    """`score` is the share of tasks solved. Against the reference, task by task: `gained` were solved only now, `lost`
    only then; None without a reference or where the tasks cannot be told apart."""

    score: float | None = None
    examples: int = 0
    gained: int | None = None
    lost: int | None = None
    file: str = ""
    problem: str | None = None
    simulated: bool = False
