"""How fast a long log is diagnosed against `grep -c` with one fixed pattern on the same file, and in how much memory.

python tests/benchmarks/log_streaming.py [--gb SIZE] [--runs N]

The log (a start, then a serving server with requests, a failed one now and then, and a crash at the end) is made in a
temporary folder. Both read it from the page cache, alternately; the ratio is of the medians. Exit status 1 when it is
below a tenth, or memory above 100 MB.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LEAST_RATIO = 0.1
MOST_MB = 100
START = """\
[2026-02-10 20:43:33] server_args={'model_path': 'm', 'tp_size': 2, 'mem_fraction_static': 0.88}
[2026-02-10 20:43:40 TP0] Init parallel begin.
[2026-02-10 20:43:50 TP0] Load weight begin. avail mem=78.70 GB
[2026-02-10 20:44:01 TP0] Load weight end. elapsed=8.04 s, type=M, avail mem=63.27 GB, mem usage=15.00 GB.
[2026-02-10 20:44:02 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 404480, K size: 26.51 GB, V size: 26.51 GB
[2026-02-10 20:44:30 TP0] max_total_num_tokens=404480, context_len=131072, available_gpu_mem=8.05 GB
[2026-02-10 20:44:33] INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)
[2026-02-10 20:44:37] The server is fired up and ready to roll!
"""
CRASH = """\
[2026-02-12 00:31:29 TP1] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/srt/managers/scheduler.py", line 2010, in run_scheduler_process
    scheduler.event_loop_overlap()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.33 GiB.

[2026-02-12 00:31:30] SIGQUIT received. signum=None, frame=None. It usually means one child failed.
"""
MEASURED = """
import sys, time
from pathlib import Path
from optagent.tools.logs import diagnose_file
began = time.perf_counter()
reading = diagnose_file(Path(sys.argv[1]))
seconds = time.perf_counter() - began
memory = next(int(row.split()[1]) for row in open("/proc/self/status") if row.startswith("VmHWM"))
print(seconds, memory / 1024, reading.cause.kind, reading.cause.evidence[0].line)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gb", type=float, default=0.25, help="size of the log (default 0.25)")
    parser.add_argument("--runs", type=int, default=5, help="runs of each (default 5)")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        lines = make(log, int(wanted.gb * 1024**3))
        greps, ours, memory = [], [], []
        for _ in range(wanted.runs):
            greps.append(grep(log))
            seconds, megabytes, kind, line = diagnose(log)
            assert (kind, line) == ("gpu-oom-runtime", lines - 2), f"wrong answer: {kind} at line {line} of {lines}"
            ours.append(seconds)
            memory.append(megabytes)
    ratio = statistics.median(greps) / statistics.median(ours)
    rate = wanted.gb * 1024 / statistics.median(ours)
    print(f"{wanted.gb:g} GB, {lines} lines: {rate:.0f} MB/s, {ratio:.3f} of grep -c (limit {LEAST_RATIO})")
    print(f"most memory {max(memory):.0f} MB (limit {MOST_MB})")
    return 0 if ratio >= LEAST_RATIO and max(memory) < MOST_MB else 1


def make(log: Path, size: int) -> int:
    """Write the log; the number of its lines."""
    block, rows = serving_lines()
    count = START.count("\n") + CRASH.count("\n")
    with log.open("wb") as file:
        file.write(START.encode())
        while file.tell() < size:
            file.write(block)
            count += rows
        file.write(CRASH.encode())
    return count


def serving_lines() -> tuple[bytes, int]:
    """Twenty thousand decode lines with what stands between them; every 5,000th request is refused."""
    rows = []
    for i in range(20_000):
        stamp = f"2026-02-{11 + i % 2} {i % 24:02d}:{i % 60:02d}:{i * 7 % 60:02d}"
        rows.append(
            f"[{stamp} TP0] Decode batch, #running-req: {i % 20}, #token: {9000 + i}, token usage: 0.{i % 90:02d}, "
            f"cuda graph: True, gen throughput (token/s): {500 + i % 99}.{i % 97:02d}, #queue-req: 0"
        )
        if i % 2:
            status = "400 Bad Request" if i % 5000 == 1 else "200 OK"
            rows.append(
                f'[{stamp}] INFO:     192.0.2.{i % 200}:{20000 + i} - "POST /v1/chat/completions HTTP/1.1" {status}'
            )
        if i % 3 == 0:
            rows.append(
                f"[{stamp} TP0] Prefill batch, #new-seq: 1, #new-token: {i % 3000}, #cached-token: 64, token usage: 0.04, "
                "#running-req: 12, #queue-req: 0, #pending-token: 0, cuda graph: False, input throughput (token/s): 513.80"
            )
    return ("\n".join(rows) + "\n").encode(), len(rows)


def grep(log: Path) -> float:
    began = time.perf_counter()
    subprocess.run(["grep", "-c", "Scheduler hit an exception", log], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def diagnose(log: Path) -> tuple[float, float, str, int]:
    """(seconds, megabytes, kind, line). The start of the interpreter is not counted: it does not grow with the log."""
    done = subprocess.run([sys.executable, "-c", MEASURED, log], capture_output=True, text=True, check=True)
    seconds, memory, kind, line = done.stdout.split()
    return float(seconds), float(memory), kind, int(line)


if __name__ == "__main__":
    sys.exit(main())
