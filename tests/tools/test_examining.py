"""Examining a server over a real socket. The servers here are stubs, and say so."""

from __future__ import annotations

import gzip
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from optagent.tools.calls.gate import Examine, Examined
from optagent.tools.examining import examine

Body = dict[str, Any]
Reply = tuple[int, Any] | None
"""Status and JSON (or bytes); None hangs up without a word."""

TIMEOUT_S = 10.0
PROMPTS = [f"prompt {number}" for number in range(8)]
TEXTS = ["one two three", "four five six seven"]


@dataclass
class Stub:
    """Not SGLang: answers as SGLang would, with tokens that follow from the prompt by arithmetic. `behave` may answer in
    its place; `asked` is all it was asked."""

    url: str = ""
    asked: list[tuple[str, Body]] = field(default_factory=list)
    drawn: Iterator[int] = field(default_factory=itertools.count)
    behave: Callable[[str, Body], Reply | str] = lambda path, body: "as usual"

    def reply(self, path: str, body: Body) -> Reply:
        self.asked.append((path, body))
        behaved = self.behave(path, body)
        return self.as_usual(path, body) if isinstance(behaved, str) else behaved

    def as_usual(self, path: str, body: Body) -> Reply:
        if path == "/server_info":
            return 200, {"stub": True, "internal_states": [{"avg_spec_accept_length": 2.5}]}
        if path == "/generate":
            return 200, self.generated(body)
        return (200, {}) if path.startswith("/flush_cache") else (404, {})

    def generated(self, body: Body, **meta: Any) -> Body:
        sampling, start = body["sampling_params"], sum(map(ord, body["text"]))
        if sampling["temperature"]:
            start += 1000 * next(self.drawn)
        wanted = sampling["max_new_tokens"]
        ids = [start + 7 * place for place in range(wanted)]
        words = body["text"].split()
        read = [[None if at == 0 else -0.25 * at, len(word), None] for at, word in enumerate(words)]
        return {
            "text": f"after {body['text']}",
            "output_ids": ids,
            "meta_info": {
                "stub": True,
                "finish_reason": {"type": "length", "length": wanted},
                "completion_tokens": wanted,
                "output_token_logprobs": [[-0.5, token, None] for token in ids],
                "input_token_logprobs": read if "logprob_start_len" in body else [],
                **meta,
            },
        }

    def questions(self) -> int:
        return sum(path in ("/generate", "/v1/completions") for path, _ in self.asked)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer in one packet
    stub: Stub

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}"))

    def _answer(self, body: Body) -> None:
        reply = self.stub.reply(self.path, body)
        self.close_connection = reply is None
        if reply is None:
            return
        status, said = reply
        content = said if isinstance(said, bytes) else json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def stub() -> Iterator[Stub]:
    stub = Stub()

    class Bound(Handler):
        pass

    Bound.stub = stub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_port}"
    yield stub
    server.shutdown()
    server.server_close()
    thread.join()


@dataclass
class Examiner:
    """Examines the stub in a campaign folder, and keeps what was reported."""

    root: Path
    stub: Stub
    reported: list[str] = field(default_factory=list)
    timeout_s: float = TIMEOUT_S

    def __call__(self, key: str = "k1", file: str = "gate/one.json.gz", **changes: Any) -> Examined:
        asked: dict[str, Any] = {"prompts": PROMPTS, "texts": TEXTS, "max_tokens": 16, "concurrency": 4}
        request = Examine(key=key, url=self.stub.url, file=file, **{**asked, **changes})
        return examine(request, self.root, self.timeout_s, False, self.reported.append)

    def stored(self, file: str = "gate/one.json.gz") -> Any:
        return json.loads(gzip.decompress((self.root / file).read_bytes()))


@pytest.fixture
def examiner(tmp_path: Path, stub: Stub) -> Examiner:
    return Examiner(tmp_path, stub)


def test_everything_is_asked_and_stored(examiner: Examiner, stub: Stub) -> None:
    examined = examiner()
    assert (examined.problem, examined.file, examined.simulated) == (None, "gate/one.json.gz", False)
    assert [one.concurrency for one in examined.passes] == [1, 4]
    for one in examined.passes:
        assert (one.failed, one.empty, one.short, one.stopped, one.repetitive) == (0, 0, 0, 0, 0)
        assert (one.tokens, one.problems) == (len(PROMPTS) * 16, [])
        assert one.latency_s is not None
    assert (examined.accept_length, examined.variety, examined.comparisons) == (2.5, 1.0, [])

    kept = examiner.stored()
    assert (kept["format"], kept["key"]) == (1, "k1")
    assert [answer["text"] for answer in kept["passes"][1]["answers"]] == [f"after {prompt}" for prompt in PROMPTS]
    assert kept["readings"][0] == {"ids": [3, 3, 5], "logprobs": [None, -0.25, -0.5]}
    assert len(kept["draws"]) == 6
    assert all(line.startswith("gate: ") for line in examiner.reported)
    assert examiner.reported[0] == "gate: 1 of 8 alone"
    assert sum(path.startswith("/flush_cache") for path, _ in stub.asked) == 2


def test_the_same_questions_again_agree(examiner: Examiner) -> None:
    examiner()
    again = examiner(key="k2", file="gate/two.json.gz", references=["gate/one.json.gz"])
    (compared,) = again.comparisons
    assert compared.problem is None
    assert [(one.concurrency, one.exact, one.early, one.prefix, one.length) for one in compared.agreement] == [
        (1, 1, 0, 1, 1),
        (4, 1, 0, 1, 1),
    ]
    assert (compared.kl, compared.far, compared.shift, compared.scored, compared.decode_kl) == (0, 0, 0, 5, 0)


def test_one_at_a_time_only(examiner: Examiner) -> None:
    assert [one.concurrency for one in examiner(concurrency=1).passes] == [1]


def test_an_examination_is_not_made_twice(examiner: Examiner, stub: Stub) -> None:
    first = examiner()
    asked = len(stub.asked)
    assert examiner() == first
    compared = examiner(references=["gate/one.json.gz"])
    assert (compared.comparisons[0].kl, compared.passes) == (0, first.passes)
    assert len(stub.asked) == asked


@pytest.mark.parametrize(("key", "max_tokens"), [("k2", 16), ("k1", 17)])
def test_another_examination_s_file_is_left_alone(examiner: Examiner, stub: Stub, key: str, max_tokens: int) -> None:
    examiner()
    before, asked = examiner.stored(), len(stub.asked)
    examined = examiner(key=key, max_tokens=max_tokens)
    assert "is of another examination" in (examined.problem or "")
    assert (examined.passes, len(stub.asked), examiner.stored()) == ([], asked, before)


def test_a_file_that_is_no_examination_is_left_alone(examiner: Examiner, stub: Stub) -> None:
    (examiner.root / "notes.txt").write_text("mine")
    assert "exists and cannot be read" in (examiner(file="notes.txt").problem or "")
    assert "leads out of" in (examiner(file="../out.json.gz").problem or "")
    assert stub.asked == []


def test_a_file_that_cannot_be_written(examiner: Examiner) -> None:
    (examiner.root / "gate").write_text("a file where a folder should be")
    assert "cannot be written" in (examiner().problem or "")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.gz", None, "is not there"),
        ("plain.gz", b"{}", "cannot be read"),
        ("cut.gz", gzip.compress(b"x" * 1000)[:-9], "cannot be read"),
        ("json.gz", gzip.compress(b"{}"), "holds no examination"),
        ("later.gz", gzip.compress(b'{"format": 2, "key": "k", "questions": "q"}'), "format"),
        ("../out.gz", None, "leads out of"),
        (".", None, "cannot be read"),
    ],
)
def test_references_that_cannot_be_read(examiner: Examiner, name: str, content: bytes | None, says: str) -> None:
    if content is not None:
        (examiner.root / name).write_bytes(content)
    examined = examiner(references=[name])
    assert examined.problem is None
    assert says in (examined.comparisons[0].problem or "")
    assert (examined.comparisons[0].reference, examined.comparisons[0].agreement) == (name, [])


def test_a_reference_with_other_questions(examiner: Examiner) -> None:
    examiner(prompts=["something else"])
    examined = examiner(key="k2", file="two.gz", references=["gate/one.json.gz"])
    assert examined.comparisons[0].problem == "it was asked other questions"


def test_answers_that_are_wrong_are_counted_with_words(examiner: Examiner, stub: Stub) -> None:
    def behave(path: str, body: Body) -> Reply | str:
        if path != "/generate" or body["text"] not in PROMPTS[:6] or body["sampling_params"]["temperature"]:
            return "as usual"
        usual = stub.generated(body)
        ids = usual["output_ids"]
        return [
            (500, {"error": "no memory"}),
            (200, usual | {"text": " "}),
            (200, usual | {"output_ids": ids[:3]}),  # it says 16 tokens, and gives three
            (200, stub.generated(body, finish_reason={"type": "stop", "matched": 2}, completion_tokens=5)),
            (200, usual | {"output_ids": [0] * 16}),
            (200, {"error": "an answer of 200 without a text"}),
        ][PROMPTS.index(body["text"])]

    stub.behave = behave
    examined = examiner()
    assert examined.problem is None
    for one in examined.passes:
        assert (one.failed, one.empty, one.short, one.stopped, one.repetitive) == (2, 1, 1, 1, 1)
        assert one.tokens == 4 * 16 + 3 + 5
        said = dict(problem.split(": ", 1) for problem in one.problems)
        assert list(said) == ["prompt 1", "prompt 2", "prompt 3", "prompt 5", "prompt 6"]
        assert said["prompt 1"].startswith("HTTP 500")
        assert said["prompt 3"] == "3 tokens instead of 16, although it ended by length"
        assert "without a text" in said["prompt 6"]


def test_a_server_that_remembers_its_answers_has_no_variety(examiner: Examiner, stub: Stub) -> None:
    known: dict[str, Body] = {}

    def behave(path: str, body: Body) -> Reply | str:
        if path != "/generate" or "logprob_start_len" in body:
            return "as usual"
        question = json.dumps(body)
        if question not in known:
            known[question] = stub.generated(body)
        return 200, known[question]

    stub.behave = behave
    assert examiner().variety == pytest.approx(1 / 6)


def test_a_server_that_speaks_openai_only(examiner: Examiner, stub: Stub) -> None:
    def behave(path: str, body: Body) -> Reply | str:
        if path == "/v1/models":
            return 200, {"data": [{"id": "m"}]}
        if path != "/v1/completions":
            return 404, {"stub": True}
        if body["prompt"] == PROMPTS[1]:
            return 500, {"error": "no"}
        choice = {"text": f"{body['model']} after {body['prompt']}", "finish_reason": "stop"}
        return 200, {"choices": [choice], "usage": {"completion_tokens": 3}}

    stub.behave = behave
    examiner()
    examined = examiner(key="k2", file="two.gz", references=["gate/one.json.gz"])
    assert (examined.problem, examined.accept_length) == (None, None)
    assert [(one.failed, one.stopped, one.tokens) for one in examined.passes] == [(1, 7, 21)] * 2
    (compared,) = examined.comparisons
    assert [(one.exact, one.prefix, one.length) for one in compared.agreement] == [(1, 1, 1)] * 2
    assert (compared.kl, compared.decode_kl, compared.scored) == (None, None, 0)
    assert "the server has no /generate" in (compared.problem or "")
    assert examiner.stored()["passes"][0]["answers"][0]["text"] == "m after prompt 0"
    assert sum(path == "/generate" for path, _ in stub.asked) == 2, "once an examination, to find out"


def test_nobody_is_there(examiner: Examiner, free_port: int) -> None:
    examiner.stub.url = f"http://127.0.0.1:{free_port}"
    examined = examiner()
    assert "nothing was answered: ConnectError" in (examined.problem or "")
    assert (examined.passes, examined.file) == ([], "")
    assert not (examiner.root / "gate").exists()


def test_a_server_that_refuses_everything(examiner: Examiner, stub: Stub) -> None:
    stub.behave = lambda path, body: (503, {"error": "loading"})
    assert "nothing was answered: HTTP 503" in (examiner().problem or "")


def test_a_server_that_dies_half_way_is_not_asked_for_ever(examiner: Examiner, stub: Stub) -> None:
    stub.behave = lambda path, body: None if stub.questions() > 5 else "as usual"
    examined = examiner()
    assert examined.problem is None
    assert [one.failed for one in examined.passes] == [3, 8]
    assert "RemoteProtocolError" in examined.passes[0].problems[0]
    assert "not asked" in examined.passes[1].problems[0]
    assert (examined.variety, examined.accept_length) == (None, None)
    assert stub.questions() == 5 + 3
    assert examiner(references=["gate/one.json.gz"]).comparisons[0].problem


def test_a_server_that_fails_now_and_then_is_asked_everything(examiner: Examiner, stub: Stub) -> None:
    stub.behave = lambda path, body: None if path == "/generate" and stub.questions() % 2 == 0 else "as usual"
    examined = examiner(concurrency=1)
    assert examined.passes[0].failed == 4
    assert stub.questions() == len(PROMPTS) + len(TEXTS) + 6


def test_a_server_that_hangs(examiner: Examiner, stub: Stub) -> None:
    forever = threading.Event()
    stub.behave = lambda path, body: "as usual" if forever.wait() else None
    examiner.timeout_s = 0.2
    examined = examiner()
    forever.set()
    assert "ReadTimeout" in (examined.problem or "")
    assert len(stub.asked) == 3


def test_a_reply_without_end_is_cut(examiner: Examiner, stub: Stub) -> None:
    endless = b'{"text": "' + b" " * (33 * 1024 * 1024)
    stub.behave = lambda path, body: (200, endless) if body.get("text") == PROMPTS[1] else "as usual"
    one = examiner(concurrency=1).passes[0]
    assert (one.failed, one.problems) == (1, ["prompt 2: ValueError: the reply is larger than 32 MiB"])


def test_an_interruption_does_not_wait_for_an_answer(examiner: Examiner, stub: Stub) -> None:
    forever = threading.Event()
    stub.behave = lambda path, body: None if stub.questions() > 1 and forever.wait() else "as usual"

    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    request = Examine(key="k", url=stub.url, file="one.gz", prompts=PROMPTS, max_tokens=4)
    with pytest.raises(KeyboardInterrupt):
        examine(request, examiner.root, 600, False, interrupt)
    forever.set()
    assert stub.questions() <= 2
    assert not (examiner.root / "one.gz").exists()


def test_an_empty_prompt_is_never_asked(examiner: Examiner, stub: Stub) -> None:
    examined = examiner(prompts=["", "a"], texts=["", "b"])
    assert [one.failed for one in examined.passes] == [1, 1]
    assert all(body["text"] for path, body in stub.asked if path == "/generate")


def test_a_simulated_server_s_answers_take_its_own_time(examiner: Examiner, stub: Stub) -> None:
    def behave(path: str, body: Body) -> Reply | str:
        virtual = {"arrived_s": 1000.0, "finished_s": 1003.5}
        return (200, stub.generated(body, simulated=True, virtual=virtual)) if path == "/generate" else "as usual"

    stub.behave = behave
    examined = examiner()
    assert examined.simulated
    assert [one.latency_s for one in examined.passes] == [3.5, 3.5]
