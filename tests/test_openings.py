"""A benchmark's answers are held against the baseline's: a server that computes nothing under its load is not faster."""

from __future__ import annotations

import hashlib
import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optagent.agent.cells import Cell
from optagent.agent.config import CampaignConfig
from optagent.agent.experiments import ITEM, Experiment, Run
from optagent.agent.jsonable import to_body
from optagent.agent.ledger import Ledger, fold
from optagent.agent.measuring import measure
from optagent.agent.numerics import Numerics
from optagent.agent.session import LedgerJournal, Session
from optagent.agent.validity import other_answers, too_few_alike
from optagent.tools.bench_judging import openings_of
from optagent.tools.calls.bench import MOST_OPENINGS
from optagent.tools.calls.configuration import Configuration
from optagent.tools.journal_store import Draft, MemoryJournal
from optagent.tools.live import LiveToolbox
from optagent.tools.recording import RecordingToolbox
from optagent.tools.stub import load_recording

SESSION = Path(__file__).parent / "sessions" / "sglang-cpu-campaign.jsonl.gz"
PLAIN = Configuration("default")
BATCHED = Configuration("default", {"max-running-requests": 16})
PATCHED = Configuration("default", revision="0123abc")
ANSWERS = tuple(f"a{n}" for n in range(10))


# What is remembered of a result


def test_an_opening_is_how_an_answer_begins() -> None:
    texts = ["The  answer\nis 42, of course", "The answer is 42, for a reason", "The answer was 42", " \n", "ü\ud800"]
    openings = openings_of({"generated_texts": texts})
    assert openings[0] == openings[1], "white space and what comes after do not matter"
    assert len(set(openings)) == 4
    assert "" not in openings


def test_an_answer_that_is_none_keeps_its_place() -> None:
    result = {"generated_texts": ["a", "b", None, "a"], "errors": ["", "HTTP 500", "", ""]}
    first, failed, no_text, last = openings_of(result)
    assert (failed, no_text) == ("", "")
    assert first == last != ""


def test_unknown_answers_and_a_bounded_number_of_them() -> None:
    assert openings_of({}) == openings_of({"generated_texts": "no list"}) == []
    assert len(openings_of({"generated_texts": ["a"] * 1000, "errors": [""] * 1000})) == MOST_OPENINGS


# When they are too different


@pytest.mark.parametrize(
    ("numerics", "alike", "counts"),
    [
        (Numerics.NONE, 10, True),
        (Numerics.NONE, 5, True),
        (Numerics.NONE, 4, False),
        (Numerics.BATCHING, 5, True),
        (Numerics.BATCHING, 4, False),
        (Numerics.ORDER, 2, True),
        (Numerics.ORDER, 1, False),
        (Numerics.UNKNOWN, 2, True),
        (Numerics.UNKNOWN, 1, False),
        (Numerics.LAW, 2, True),
        (Numerics.LAW, 0, False),
    ],
)
def test_how_many_must_begin_alike(numerics: Numerics, alike: int, counts: bool) -> None:
    mine = [*ANSWERS[:alike], *("other" for _ in ANSWERS[alike:])]
    reason = too_few_alike(mine, ANSWERS, numerics)
    says = f"{alike} of 10 answers of the benchmark begin as the baseline's did with the same prompts"
    assert reason == (None if counts else says)


@pytest.mark.parametrize(
    ("mine", "known", "counts"),
    [
        ([], ANSWERS, True),
        (["x"] * 10, (), True),
        (["x"] * 3, ANSWERS, True),
        (["x"] * 4, ANSWERS, False),
        ([""] * 10, ANSWERS, False),  # there were answers, but none that can be read
        (["x"] * 10, ("", *ANSWERS[1:3], ""), True),  # the baseline's are not known
    ],
)
def test_what_cannot_be_compared_counts(mine: list[str], known: tuple[str, ...], counts: bool) -> None:
    assert (too_few_alike(mine, known, Numerics.NONE) is None) == counts


hashes = st.lists(st.sampled_from(["", "a", "b"]), max_size=12)


@given(hashes, hashes, st.sampled_from(Numerics))
def test_the_same_answers_always_count_and_more_freedom_never_refuses(
    mine: list[str], known: list[str], numerics: Numerics
) -> None:
    assert too_few_alike(known, known, numerics) is None
    if too_few_alike(mine, known, Numerics.NONE) is None:
        assert too_few_alike(mine, known, numerics) is None


# What they are held against


def run(arm: str, seed: int | None, openings: tuple[str, ...], valid: bool = True) -> Run:
    return Run(arm, 1, 1.0, valid, openings=openings, seed=seed)


def entries(*runs: Run, candidate: Configuration = BATCHED) -> list[Draft]:
    experiment = Experiment("E0001", ITEM, "t", PLAIN, "S001", candidate=candidate)
    body = to_body({"id": "E0001", "kind": ITEM, "title": "t", "base": PLAIN, "candidate": experiment.candidate})
    return [
        Draft("sitting", {"id": "S001"}, "S001"),
        Draft("experiment", body, "E0001"),
        *(Draft("run", {"experiment": "E0001", "run": to_body(run)}, str(n)) for n, run in enumerate(runs)),
    ]


def ledger_of(drafts: list[Draft]) -> Ledger:
    journal = MemoryJournal()
    for draft in drafts:
        journal.append(draft.kind, draft.body, draft.key)
    return fold(journal.entries())


@pytest.mark.parametrize(
    ("earlier", "counts"),
    [
        ([run("baseline", 7, ANSWERS)], False),
        ([], True),
        ([run("baseline", 8, ANSWERS)], True),  # other prompts
        ([run("candidate", 7, ANSWERS)], True),  # another configuration
        ([run("baseline", 7, ANSWERS, valid=False)], True),
        ([run("baseline", 7, ("x",) * 10), run("baseline", 7, ANSWERS)], False),  # the latest
        ([run("baseline", 7, ANSWERS), run("baseline", 7, ("x",) * 10)], True),
    ],
)
def test_a_valid_run_of_the_baseline_with_the_same_prompts(earlier: list[Run], counts: bool) -> None:
    ledger = ledger_of(entries(*earlier))
    reason = other_answers(ledger, ledger.experiments["E0001"], run("candidate", 7, ("x",) * 10))
    assert (reason is None) == counts


def test_a_change_that_may_move_the_output_may_change_more_answers() -> None:
    mine = run("candidate", 7, (*ANSWERS[:3], *("x",) * 7))
    for candidate, counts in ((BATCHED, False), (PATCHED, True)):
        ledger = ledger_of(entries(run("baseline", 7, ANSWERS), candidate=candidate))
        assert (other_answers(ledger, ledger.experiments["E0001"], mine) is None) == counts


def test_another_sitting_may_have_other_prompts() -> None:
    drafts = [*entries(run("baseline", 7, ANSWERS)), Draft("sitting-ended", {"id": "S001"}, "end")]
    assert ledger_of(drafts).openings
    assert not ledger_of([*drafts, Draft("sitting", {"id": "S002"}, "S002")]).openings


# A server that lies


class Server(ThreadingHTTPServer):
    """A stub of SGLang's endpoints: it answers each prompt with words of its own. When it `lies`, streams that do not end
    by themselves, as benchmarks ask for, are random words."""

    daemon_threads = True
    lies = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)

    def words(self, body: dict[str, Any]) -> list[str]:
        sampling = body["sampling_params"]
        lie = self.lies and body.get("stream") and sampling["ignore_eos"]
        digest = hashlib.sha256(json.dumps(body["input_ids"]).encode()).hexdigest()
        draws = random.Random() if lie else random.Random(digest)
        return [f"word{draws.randrange(10_000)}" for _ in range(sampling["max_new_tokens"])]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def handle(self) -> None:
        with suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        self._reply(b'{"version": "stub"}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.path != "/generate":
            self._reply(b"{}")
            return
        words = self.server.words(body)
        answers: list[dict[str, Any]] = [
            {
                "text": " ".join(words[: n + 1]),
                "meta_info": {"prompt_tokens": len(body["input_ids"]), "completion_tokens": n + 1},
            }
            for n in range(len(words))
        ]
        if body.get("stream"):
            self._reply("".join(f"data: {json.dumps(answer)}\n\n" for answer in answers).encode())
        else:
            self._reply(json.dumps(answers[-1]).encode())

    def _reply(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


class Silent:
    def tell(self, what: str, text: str) -> None:
        pass

    def now(self, text: str) -> None:
        pass

    def detail(self, text: str) -> None:
        pass


@pytest.mark.parametrize("candidate", [BATCHED, PATCHED])
def test_a_server_that_lies_to_the_benchmark_alone_is_found(candidate: Configuration, tmp_path: Path) -> None:
    config = CampaignConfig.model_validate(
        {
            "name": "x",
            "workload": {
                "name": "house", "input_len": 16, "output_len": 8, "num_prompts": 12, "max_concurrency": 4,
                "warmup_requests": 0,
            },
            "measuring": {"discard_first": False},
            "deployment": {"kind": "sglang", "environments": {"default": {}}},
        }
    )  # fmt: skip
    journal = LedgerJournal(MemoryJournal())
    live = LiveToolbox(tmp_path, config.deployment, lambda text: None, {})
    session = Session(config, RecordingToolbox(live, journal), journal, Silent())
    session.note("sitting", {"id": "S001"})
    session.note("experiment", {"id": "E0001", "kind": ITEM, "title": "t", "base": PLAIN, "candidate": candidate})
    experiment = session.ledger.experiments["E0001"]
    with serving() as server:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        [base] = measure(session, experiment, Cell("E0001", "baseline", 1), url)
        [honest] = measure(session, experiment, Cell("E0001", "candidate", 1), url)
        server.lies = True
        [lying] = measure(session, experiment, Cell("E0001", "candidate", 1, 1), url)
    assert (base.valid, honest.valid, lying.valid) == (True, True, False)
    assert base.openings == honest.openings
    assert lying.because == "0 of 12 answers of the benchmark begin as the baseline's did with the same prompts"


# What a real server shows


def test_runs_with_the_same_prompts_began_alike_on_a_real_server() -> None:
    """In the recorded campaign, whose changes are one that batches otherwise and a slow patch: nine of ten answers at least."""
    known: dict[int, list[list[str]]] = {}
    for call in load_recording(SESSION).calls:
        if call.tool == "bench" and call.result.get("openings") and call.request:
            known.setdefault(call.request["seed"], []).append(call.result["openings"])
    pairs = [pair for openings in known.values() for pair in combinations(openings, 2)]
    assert len(pairs) > 10
    assert min(sum(a == b for a, b in zip(*pair, strict=True)) / len(pair[0]) for pair in pairs) >= 0.9
