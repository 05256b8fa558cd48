"""A stub, not SGLang: prints the start-up lines of SGLang and behaves well or badly, as `--behaviour` says.

healthy            serves
crashes            dies with CUDA out of memory while loading weights
dies-silently      ends with status 3 and without a word
stands-still       prints its first lines and then nothing any more
never-answers      says that it is ready, and its /health stays 503
impostor           says that it is ready, and listens nowhere
loses-port         finds its port taken, and lives on
ignores-sigterm    serves, and ignores SIGTERM
leaves-orphan      serves; a grandchild in a session of its own outlives it and ignores SIGTERM
leaves-unmarked    serves; a child in a session of its own, without our environment, outlives it
hangs-under-load   answers one long request, and none of several at once
fails-at-first     answers three long requests with an error, and all later ones in full
answers-short      answers long requests with too few tokens
dies-under-load    dies with CUDA out of memory at the first long request
only-at-once       answers long requests only when eight of them are there
crashed-but-alive  prints a scheduler's end, and its parent lives on

Whatever it does, GET /leave-unmarked makes it start the child of leaves-unmarked.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Barrier
from typing import ClassVar, NoReturn

STAMP = "[2026-01-01 00:00:00]"
BEGINNING = ("server_args={'model_path': 'stub'}", "Load weight begin. avail mem=79.10 GB")
ENDING = (
    "Load weight end. avail mem=40.00 GB",
    "KV Cache is allocated. #tokens: 4096, K size: 1.00 GB, V size: 1.00 GB",
    "max_total_num_tokens=4096, max_running_requests=8, context_len=2048, available_gpu_mem=8.00 GB",
    "INFO:     Uvicorn running on http://127.0.0.1",
    "The server is fired up and ready to roll!",
)


EIGHT = Barrier(8)


class Answers(BaseHTTPRequestHandler):
    behaviour = "healthy"
    long_requests: ClassVar[Iterator[int]] = count(1)

    def do_GET(self) -> None:
        if self.path == "/server_info":
            self._answer(200, {"internal_states": [{"avg_spec_accept_length": 2.5}]})
        elif self.path == "/health":
            self._answer(503 if self.behaviour == "never-answers" else 200, {})
        elif self.path == "/leave-unmarked":
            leave_unmarked()
            self._answer(200, {})
        else:
            self._answer(404, {})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        wanted = request["sampling_params"]["max_new_tokens"]
        status, tokens = self._under_load(wanted) if wanted > 1 else (200, wanted)
        meta = {"completion_tokens": tokens, "finish_reason": {"type": "length", "length": tokens}}
        self._answer(status, {"text": f"after {request['text']}", "meta_info": meta})

    def _under_load(self, wanted: int) -> tuple[int, int]:
        """Status and tokens of the answer to a long request, if it comes to that."""
        number = next(self.long_requests)
        if self.behaviour == "dies-under-load":
            say_out_of_memory()
            os._exit(1)
        if self.behaviour == "hangs-under-load":
            time.sleep(0.5)
            if next(self.long_requests) > number + 1:
                wait_for_ever()
        if self.behaviour == "only-at-once":
            EIGHT.wait()
        failed = self.behaviour == "fails-at-first" and number <= 3
        return 500 if failed else 200, 3 if self.behaviour == "answers-short" else wanted

    def _answer(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class Server(ThreadingHTTPServer):
    request_queue_size = 64


def say(*lines: str) -> None:
    for line in lines:
        print(f"{STAMP} {line}", flush=True)


def leave_orphan() -> None:
    """Fork twice, so that the grandchild has neither our session nor, after a moment, its parent."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
    os._exit(0)


def wait_for_ever() -> NoReturn:
    while True:
        time.sleep(60)


def leave_unmarked() -> None:
    """Start a child that has neither our session nor our environment; while we live it is found by its parent alone."""
    forgetful = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", forgetful], env={}, start_new_session=True)


def say_out_of_memory() -> None:
    say("Scheduler hit an exception: Traceback (most recent call last):")
    print('  File "model_loader.py", line 1, in load')
    print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.")
    print(flush=True)
    say("Received sigquit from a child process. It usually means the child failed.")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1", help="where to listen, not --port")
    parser.add_argument("--port", "-p", type=int, required=True)
    parser.add_argument("--behaviour", default="healthy")
    options = parser.parse_args()
    behaviour = options.behaviour
    if behaviour == "dies-silently":
        sys.exit(3)
    say(*BEGINNING)
    if behaviour == "crashes":
        say_out_of_memory()
        sys.exit(1)
    if behaviour == "crashed-but-alive":
        say("Rank 1 scheduler is dead. Please check if there are relevant logs.")
        wait_for_ever()
    if behaviour == "stands-still":
        wait_for_ever()
    if behaviour == "loses-port":
        say("ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 1): address already in use")
        wait_for_ever()
    if behaviour == "impostor":
        say(*ENDING)
        wait_for_ever()
    if behaviour == "leaves-orphan":
        leave_orphan()
    if behaviour == "ignores-sigterm":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if behaviour == "leaves-unmarked":
        leave_unmarked()
    Answers.behaviour = behaviour
    server = Server((options.host, options.port), Answers)
    say(*ENDING)
    server.serve_forever()


if __name__ == "__main__":
    main()
