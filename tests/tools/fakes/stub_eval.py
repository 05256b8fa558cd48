"""A stub, not SGLang: stands in for a Python that is asked to run `-m sglang.test.run_eval`.

It prints and writes what `run_eval` of SGLang 0.5.23 does. STUB_EVAL in its environment says how it behaves: a string of
0 and 1 for the tasks in order, or "refused", "exit", "nothing", "children".
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

REPORT = """<h3>Sampled message</h3>
<div class="message assistant"><pre>&lt;p&gt;Score: 1.0&lt;/p&gt;</pre></div>
<h3>Results</h3>
<p>Correct Answer: 7</p>
<p>Extracted Answer: 7</p>
<p>Score: {score}.0</p>
    <hr>
"""


def main() -> int:
    assert sys.argv[1:3] == ["-m", "sglang.test.run_eval"]
    words = argparse.ArgumentParser()
    for name in ("base-url", "model", "eval-name", "gsm8k-data-path"):
        words.add_argument(f"--{name}", required=True)
    for name in ("num-examples", "num-threads", "max-tokens"):
        words.add_argument(f"--{name}", type=int, required=True)
    given = words.parse_args(sys.argv[3:])
    behaviour = os.environ["STUB_EVAL"]
    if behaviour == "exit":
        print("openai.APIConnectionError: Connection error.")
        return 1
    if behaviour == "children":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        Path("child.new").write_text(str(child.pid))
        Path("child.new").rename("child")
        child.wait()
    tasks = [json.loads(line) for line in Path(given.gsm8k_data_path).read_text().splitlines()][5:]
    assert len(tasks) == given.num_examples
    solved = [0] * len(tasks) if behaviour in ("refused", "nothing") else [int(one) for one in behaviour]
    if behaviour == "refused":
        print("Bad Request Error" * 2 + " Error code: 400 - {'message': 'too long', 'type': 'BadRequestError'}")
    print(f"\r100%|##########| {len(tasks)}/{len(tasks)} [00:00<00:00, 16.79it/s]", file=sys.stderr)
    if behaviour == "nothing":
        return 0
    score = sum(solved) / len(tasks)
    stem = f"/tmp/gsm8k_{given.model}"
    print(f"Score: {score:.3f}\nWriting report to {stem}.html")
    Path(f"{stem}.html").write_text("".join(REPORT.format(score=one) for one in solved))
    Path(f"{stem}.json").write_text(json.dumps({"score:std": 0.5, "score": score, "latency": 0.5}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
