"""The GPUs of this machine: through NVML, else through nvidia-smi, else nothing is known about them."""

from __future__ import annotations

import csv
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from optagent.tools.calls.world import Gpu

SMI_FIELDS = "index,name,memory.total,memory.used,compute_cap"
SMI_TIMEOUT_S = 20.0
MIB_PER_GB = 1024.0
"""NVML and nvidia-smi count in binary units, and so does SGLang's log where it says GB."""

LOOK_EVERY_S = 1.0
SLACK_GB = 0.5
"""What other programs' use of a GPU may vary by."""

LookAtGpus = Callable[[], list[Gpu] | None]


def look_at_gpus() -> list[Gpu] | None:
    """Every GPU with who holds it, None when there is no way to know."""
    found = _from_nvml()
    return found if found is not None else _from_smi()


def still_held(gpus: Sequence[Gpu], pids: Collection[int], before: Mapping[int, float]) -> str | None:
    """Which GPU has not got back what a server held, in words; None when all have.

    `pids` are the server's processes, which have ended. Drivers tell other pids inside a container, or none at all, so
    what is in use is held against `before` as well: GB by the GPU's index, of those that were looked at.
    """
    for gpu in gpus:
        ours = sorted(set(gpu.holders) & set(pids))
        if ours:
            return (
                f"pid {ours[0]} still holds memory on GPU {gpu.index}, of which {gpu.memory_used_gb:.1f} GB are in use"
            )
        if gpu.index in before and gpu.memory_used_gb > before[gpu.index] + SLACK_GB:
            by = f" by pid {', '.join(map(str, gpu.holders))}" if gpu.holders else ""
            was = f"{before[gpu.index]:.1f} GB before the launch"
            return f"{gpu.memory_used_gb:.1f} GB are still in use on GPU {gpu.index}{by}, {was}"
    return None


def held_after(look: LookAtGpus, pids: Collection[int], before: Mapping[int, float], timeout_s: float) -> str | None:
    """Wait until the GPUs have got back what the processes held; what `still_held` says after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while (held := still_held(look() or [], pids, before)) and time.monotonic() < deadline:
        time.sleep(min(LOOK_EVERY_S, timeout_s / 10))
    return held


def in_use(gpus: list[Gpu] | None) -> dict[int, float]:
    """GB in use by the GPU's index."""
    return {gpu.index: gpu.memory_used_gb for gpu in gpus or []}


def driver_version() -> str | None:
    """The NVIDIA driver's version, None without one."""
    nvml = _nvml()
    if nvml is None:
        return None
    try:
        return str(nvml.nvmlSystemGetDriverVersion())
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def parse_smi(text: str) -> list[Gpu]:
    """The GPUs in the output of `nvidia-smi --query-gpu=... --format=csv,noheader,nounits`."""
    gpus = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(row) != 5 or not row[0].strip().isdigit():
            continue
        index, name, total, used, capability = (cell.strip() for cell in row)
        try:
            memory = float(total) / MIB_PER_GB, float(used) / MIB_PER_GB
        except ValueError:  # "[N/A]": a GPU that shares the host's memory
            continue
        gpus.append(
            Gpu(
                index=int(index),
                name=name,
                memory_total_gb=round(memory[0], 2),
                memory_used_gb=round(memory[1], 2),
                compute_capability=capability,
            )
        )
    return gpus


def _from_nvml() -> list[Gpu] | None:
    nvml = _nvml()
    if nvml is None:
        return None
    try:
        return [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _nvml() -> Any:
    """The NVML module with the library initialised, None when there is no driver to talk to."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _gpu(nvml: Any, index: int) -> Gpu:
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(device)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(device)
    name = nvml.nvmlDeviceGetName(device)
    return Gpu(
        index=index,
        name=name.decode() if isinstance(name, bytes) else str(name),
        memory_total_gb=round(memory.total / 2**30, 2),
        memory_used_gb=round(memory.used / 2**30, 2),
        compute_capability=f"{major}.{minor}",
        holders=sorted({p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(device)}),
    )


def _from_smi() -> list[Gpu] | None:
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={SMI_FIELDS}", "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SMI_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_smi(done.stdout.decode(errors="replace")) if done.returncode == 0 else None
