"""Measures the server with optagent's own load generator, and takes and leaves what SGLang's client does."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from optagent.tools.calls.bench import Workload
from optagent.tools.loadgen import generate_load

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--output-file", type=Path, required=True)
    for name in ("--seed", "--num-prompts", "--max-concurrency", "--random-input-len", "--random-output-len"):
        parser.add_argument(name, type=int, required=True)
    given, _ = parser.parse_known_args()
    workload = Workload(
        input_len=given.random_input_len, output_len=given.random_output_len, num_prompts=given.num_prompts,
        max_concurrency=given.max_concurrency, warmup_requests=0,
    )  # fmt: skip
    given.output_file.write_text(json.dumps(generate_load(given.base_url, workload, given.seed)) + "\n")
