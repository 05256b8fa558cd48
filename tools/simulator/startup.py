"""The script of a launch: SGLang's start-up lines phase by phase, up to ready or to the failure it meets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from optagent.tools.simulator.failures import Failure, out_of_memory
from optagent.tools.simulator.memory import MemoryPlan, uses_draft
from optagent.tools.simulator.noise import generator
from optagent.tools.simulator.setup import Setup
from optagent.tools.simulator.surroundings import Surroundings
from optagent.tools.simulator.timeline import Timeline
from optagent.tools.simulator.tracebacks import capture_text, forward_frames, traceback_text
from optagent.tools.simulator.wording import Wording, wording

LOADED, BIND, READY, DIE, HANG = "loaded", "bind", "ready", "die", "hang"
"""What happens with a line: the weights are in memory, the port is bound, the server is ready, the process dies, nothing
happens ever after."""


@dataclass(frozen=True)
class Plan:
    """Everything a launch's script is written from."""

    fields: Mapping[str, Any]
    setup: Setup
    around: Surroundings
    memory: MemoryPlan
    failure: Failure | None

    @property
    def words(self) -> Wording:
        return wording(self.around.versions["sglang"])

    @property
    def pid(self) -> int:
        """An illustrative process number, so that the same launch writes the same log."""
        return generator(self.around.scenario.seed, self.around.launch, "pid").randint(1200, 9800)


Phase = Callable[[Timeline, Plan], None]


def write_script(plan: Plan) -> Timeline:
    """The launch's lines. The phase of a failure is begun and then breaks off."""
    draws = generator(plan.around.scenario.seed, plan.around.launch, "start-up")
    script = Timeline(min(plan.setup.tp_size, plan.around.scenario.hardware.count), draws)
    for name, begin, end in PHASES:
        begin(script, plan)
        if plan.failure and plan.failure.phase == name:
            collapse(script, plan, plan.failure)
            return script
        end(script, plan)
    return script


def arguments(script: Timeline, plan: Plan) -> None:
    script.raw(plan.words.import_warning)
    if plan.fields["attention_backend"] is None:
        line = plan.words.attention_default.format(backend=plan.setup.attention_backend)
        if plan.words.new:
            script.parent(line)
        else:
            script.raw(line)
    if plan.setup.all_reduce.fused and not plan.fields["enable_flashinfer_allreduce_fusion"]:
        script.parent(plan.words.fusion_default)
    script.wait(0.8)


def arguments_done(script: Timeline, plan: Plan) -> None:
    settled = dict(plan.fields) | {
        "tokenizer_path": plan.fields["tokenizer_path"] or plan.fields["model_path"],
        "attention_backend": plan.setup.attention_backend,
        "mem_fraction_static": plan.setup.mem_fraction_static,
        "cuda_graph_max_bs": plan.setup.graph_max_bs or None,
        "enable_flashinfer_allreduce_fusion": plan.setup.all_reduce.fused,
    }
    if plan.words.new:
        script.parent(f"server_args={settled!r}")
    else:
        script.parent("server_args=ServerArgs(" + ", ".join(f"{k}={v!r}" for k, v in settled.items()) + ")")
    script.wait(1.0)
    script.parent("Using default HuggingFace chat template with detected content format: openai")
    script.wait(12.0)


def distributed(script: Timeline, plan: Plan) -> None:
    script.each(lambda rank: plan.words.init_begin)
    script.wait(1.2)
    peers = script.ranks - 1
    for rank in range(script.ranks) if peers else ():
        script.raw(
            f"[Gloo] Rank {rank} is connected to {peers} peer ranks. "
            f"Expected number of connected peer ranks is : {peers}\n"
        )
    script.wait(0.6)
    script.rank(0, f"sglang is using nccl=={plan.around.versions['nccl']}")
    script.wait(1.0)


def distributed_done(script: Timeline, plan: Plan) -> None:
    if plan.setup.all_reduce.algorithm == "nccl" and not plan.fields["disable_custom_all_reduce"] and script.ranks > 2:
        script.each(
            lambda rank: (
                "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs. To "
                "silence this warning, specify disable_custom_all_reduce=True explicitly."
            )
        )
    script.wait(0.8)
    for template in plan.words.init_end:
        script.each(
            lambda rank, template=template: template.format(  # type: ignore[misc]
                elapsed=4.0 + script.jitter(0.1), used=plan.around.scenario.hardware.context_gb + script.jitter(0.05)
            )
        )
    script.wait(1.5)


def weights(script: Timeline, plan: Plan) -> None:
    script.each(lambda rank: f"Load weight begin. avail mem={plan.memory.at_start_gb + script.jitter(0.05):.2f} GB")
    script.wait(1.0)
    model = plan.around.scenario.model
    name = plan.fields["model_path"]
    script.rank(0, f"Found local HF snapshot for {name} at /models/{name}; skipping download.")
    script.wait(1.0)
    broken = plan.failure is not None and plan.failure.phase == "weight-load"
    load_bar(script, model.shards, model.weights_gb * 8 / model.load_gb_per_s, 0.6 if broken else 1.0)


def weights_done(script: Timeline, plan: Plan) -> None:
    model = plan.around.scenario.model
    memory = plan.memory
    script.raw("\n")
    script.parent("", action=LOADED)
    script.each(
        lambda rank: plan.words.load_end.format(
            elapsed=model.weights_gb * 8 / model.load_gb_per_s + script.jitter(0.5),
            type=model.architecture,
            avail=memory.after_weights_gb + script.jitter(0.05),
            used=memory.weights_gb,
        )
    )
    script.wait(1.0)
    if uses_draft(plan.setup) and plan.words.new:
        load_draft(script, plan)


def load_draft(script: Timeline, plan: Plan) -> None:
    """The draft model's weights: between the target's weights and its pool in newer releases, after capture before."""
    memory, gb = plan.memory, plan.around.scenario.model.draft_weights_gb
    before = memory.after_weights_gb if plan.words.new else memory.after_capture_gb
    after = memory.after_draft_gb if plan.words.new else memory.after_capture_gb
    script.each(lambda rank: f"Load weight begin. avail mem={before + script.jitter(0.05):.2f} GB")
    script.wait(1.0)
    load_bar(script, 1, 3.0, 1.0)
    script.raw("\n")
    script.each(
        lambda rank: plan.words.load_end.format(
            elapsed=4.0 + script.jitter(0.2), type="LlamaForCausalLMEagle3", avail=after + script.jitter(0.05), used=gb
        )
    )
    script.wait(1.0)


def load_bar(script: Timeline, shards: int, seconds: float, share: float) -> None:
    """The shard bar: each update ends with a newline."""
    each_s = seconds / shards
    for done in range(int(shards * share) + 1):
        left = f"{clock(each_s * (shards - done))}, {each_s:.2f}s/it" if done else "?, ?it/s"
        percent = 100 * done // shards
        script.raw(
            f"\rLoading safetensors checkpoint shards: {percent:3d}% Completed | {done}/{shards} "
            f"[{clock(each_s * done)}<{left}]\n"
        )
        script.wait(each_s)


def pool(script: Timeline, plan: Plan) -> None:
    if plan.words.kv_dtype:
        line = plan.words.kv_dtype.format(dtype=plan.setup.kv_dtype)
        script.each(lambda rank: line)
    script.wait(1.0)


def pool_done(script: Timeline, plan: Plan) -> None:
    memory = plan.memory
    line = plan.words.kv_pool.format(dtype=plan.setup.kv_dtype, tokens=memory.kv_tokens, size=memory.kv_gb)
    script.each(lambda rank: line)
    script.wait(0.8)
    script.each(lambda rank: f"Memory pool end. avail mem={memory.after_pool_gb + script.jitter(0.05):.2f} GB")
    script.wait(1.5)


def capture(script: Timeline, plan: Plan) -> None:
    if not plan.setup.graph_max_bs:
        return
    what, per_request = "decode", 1
    if plan.setup.speculation:
        what, per_request = "verify", plan.setup.speculation.verify_tokens
    script.each(
        lambda rank: plan.words.capture_begin.format(
            avail=plan.memory.after_pool_gb + script.jitter(0.05), what=what, per_request=per_request
        )
    )
    script.wait(0.7)
    if plan.words.capture_list:
        script.rank(0, plan.words.capture_list.format(sizes=plan.setup.graph_sizes))
    script.wait(0.5)
    broken = plan.failure is not None and plan.failure.phase == "graph-capture"
    capture_bar(script, plan, 0.1 if broken else 1.0)


def capture_bar(script: Timeline, plan: Plan, share: float) -> None:
    """The capture bar, rank 0's: no update ends with a newline, so the next message is glued to it."""
    sizes = plan.setup.graph_sizes[::-1]
    count = max(1, int(len(sizes) * share))
    costs, compiled = plan.around.scenario.costs, frozenset(plan.setup.compiled_sizes)
    for done, size in enumerate(sizes[:count]):
        step_s = costs.capture_s_per_graph + (costs.compile_s_per_graph if size in compiled else 0.0)
        avail = plan.memory.after_pool_gb - plan.memory.graph_gb * done / len(sizes)
        percent = 100 * done // len(sizes)
        script.raw(
            f"\rCapturing batches (bs={size} avail_mem={max(0.0, avail):.2f} GB): {percent:3d}%|{'█' * (percent // 10):<10}"
            f"| {done}/{len(sizes)} [{clock(capture_s(plan, done))}<"
            f"{clock(costs.capture_s_per_graph * (len(sizes) - done))}, {step_s:.2f}s/it]"
        )
        script.wait(step_s)
    if share == 1.0:
        seconds = clock(capture_s(plan, len(sizes)))
        script.raw(
            f"\rCapturing batches (bs=1 avail_mem={plan.memory.after_capture_gb:.2f} GB): 100%|{'█' * 10}| "
            f"{len(sizes)}/{len(sizes)} [{seconds}<00:00, {step_s:.2f}s/it]\n"
        )


def capture_s(plan: Plan, graphs: int) -> float:
    """What the first so many graphs take, the largest first. Only small ones are compiled, and each takes much longer."""
    costs, setup = plan.around.scenario.costs, plan.setup
    compiled = max(0, graphs - (len(setup.graph_sizes) - len(setup.compiled_sizes)))
    return costs.capture_s_per_graph * graphs + costs.compile_s_per_graph * compiled


def capture_done(script: Timeline, plan: Plan) -> None:
    if plan.setup.graph_max_bs:
        sizes = plan.setup.graph_sizes
        elapsed = capture_s(plan, len(sizes)) + 1.2
        used, avail = plan.memory.graph_gb, plan.memory.after_capture_gb
        what = "verify" if plan.setup.speculation else "decode"
        if plan.setup.all_reduce.algorithm != "nccl":
            script.each(lambda rank: f"Registering {len(sizes) * 122} cuda graph addresses")
        script.wait(0.4)
        script.each(
            lambda rank: plan.words.capture_end.format(
                elapsed=elapsed + script.jitter(0.1),
                used=used,
                avail=avail + script.jitter(0.05),
                sizes=sizes,
                what=what,
            )
        )
        script.wait(0.8)
    if uses_draft(plan.setup):
        draft_graphs(script, plan)
    fields, setup = plan.fields, plan.setup
    script.rank(
        0,
        f"max_total_num_tokens={plan.memory.kv_tokens}, chunked_prefill_size={fields['chunked_prefill_size']}, "
        f"max_prefill_tokens={fields['max_prefill_tokens']}, max_running_requests={setup.max_running_requests}, "
        f"context_len={setup.context_len}, available_gpu_mem={plan.memory.after_capture_gb:.2f} GB",
    )
    script.wait(1.5)


def draft_graphs(script: Timeline, plan: Plan) -> None:
    """The draft model's turn: load, pool and capture in older releases, only capture in newer ones."""
    if not plan.words.new:
        script.each(lambda rank: plan.words.init_begin)
        script.wait(0.8)
        script.each(lambda rank: plan.words.init_end[0].format(elapsed=0.2, used=0.02))
        load_draft(script, plan)
        pool(script, plan)
        script.each(lambda rank: f"Memory pool end. avail mem={plan.memory.after_capture_gb:.2f} GB")
        script.wait(0.8)
    if plan.setup.graph_max_bs:
        avail = plan.memory.after_capture_gb
        script.each(lambda rank: plan.words.draft_capture_begin.format(avail=avail))
        script.wait(6.0)
        script.each(
            lambda rank: plan.words.draft_capture_end.format(
                elapsed=6.1 + script.jitter(0.1), used=0.2, avail=avail, sizes=plan.setup.graph_sizes
            )
        )
        script.wait(1.0)


def warmup(script: Timeline, plan: Plan) -> None:
    script.parent(f"INFO:     Started server process [{plan.pid}]")
    script.parent("INFO:     Waiting for application startup.")
    script.parent("INFO:     Application startup complete.", action=BIND)
    script.wait(1.0)
    client = 41000 + plan.pid % 1000
    script.parent(f'INFO:     127.0.0.1:{client} - "GET {plan.words.model_info} HTTP/1.1" 200 OK')
    script.wait(1.0)


def warmup_done(script: Timeline, plan: Plan) -> None:
    client = 41000 + plan.pid % 1000
    if not plan.fields["skip_server_warmup"]:
        script.rank(
            0,
            "Prefill batch, #new-seq: 1, #new-token: 7, #cached-token: 0, token usage: 0.00, #running-req: 0, "
            + "#queue-req: 0, "
            + plan.words.prefill_extra.format(pending=0)
            + plan.words.prefill_tail
            + "input throughput (token/s): 16.93",
        )
        script.wait(1.5)
        script.parent(f'INFO:     127.0.0.1:{client + 2} - "POST /generate HTTP/1.1" 200 OK')
        if plan.words.freeze_gc:
            script.parent(f'INFO:     127.0.0.1:{client + 4} - "POST /freeze_gc HTTP/1.1" 200 OK')
    script.parent("The server is fired up and ready to roll!", action=READY)


def collapse(script: Timeline, plan: Plan, failure: Failure) -> None:
    """How a launch ends: the parent's line comes before the traceback of the rank, as nobody locks the stream."""
    if failure.silent == "hang":
        script.parent("", action=HANG)
        return
    script.wait(1.0)
    if failure.rank is None:
        script.raw(traceback_text(failure.frames, failure.error))
        script.parent("", action=DIE)
        return
    if failure.silent == "killed":
        script.parent(
            f"Subprocess scheduler_{failure.rank} (pid={plan.pid + 20}) crashed with exit code -9. Triggering "
            "SIGQUIT for cleanup..."
        )
        script.parent("", action=DIE)
        return
    script.parent("Received sigquit from a child process. It usually means the child failed.")
    if failure.phase == "graph-capture":
        text = capture_text(failure.frames, failure.error, plan.words.hints)
    else:
        text = traceback_text(failure.frames, failure.error)
    script.rank(failure.rank, f"Scheduler hit an exception: {text}")
    script.wait(0.7)
    tear_down(script, plan, failure.rank)


def tear_down(script: Timeline, plan: Plan, first: int) -> None:
    """The other ranks lose their peer; the parent kills the tree."""
    if plan.words.new:
        script.parent(f"kill_process_tree called: parent_pid={plan.pid}, include_parent=True, pid={plan.pid}")
    for rank in [rank for rank in range(script.ranks) if rank != first][:2]:
        script.raw(
            f"[rank{rank}]:[W ProcessGroupNCCL.cpp:1783] [PG ID 0 PG GUID 0 Rank {rank}] Failed to check the "
            '"should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Connection '
            "reset by peer\n"
        )
    script.wait(0.5)
    script.parent("", action=DIE)


def clock(seconds: float) -> str:
    """Minutes and seconds as a progress bar writes them."""
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


PHASES: tuple[tuple[str, Phase, Phase], ...] = (
    ("arguments", arguments, arguments_done),
    ("distributed-init", distributed, distributed_done),
    ("weight-load", weights, weights_done),
    ("memory-pool", pool, pool_done),
    ("graph-capture", capture, capture_done),
    ("warmup", warmup, warmup_done),
)


def last_words(plan: Plan, tokens: int) -> list[tuple[str, int | None]]:
    """What is said, and by which rank (None: the parent), when a prefill batch of so many tokens finds no memory."""
    hardware, costs = plan.around.scenario.hardware, plan.around.scenario.costs
    tried = tokens * costs.activation_gb_per_1k_tokens / 1024
    error = out_of_memory(0, hardware.memory_gb, tried, min(tried * 0.9, plan.memory.after_capture_gb))
    return [
        ("Received sigquit from a child process. It usually means the child failed.", None),
        (f"Scheduler hit an exception: {traceback_text(forward_frames('memory'), error)}", 0),
    ]
