"""The GPUs of this machine: through NVML, else through nvidia-smi, else nothing is known about them."""

from __future__ import annotations

import csv
import subprocess
from typing import Any

from optagent.tools.calls.world import Gpu

SMI_FIELDS = "index,name,memory.total,memory.used,compute_cap"
SMI_TIMEOUT_S = 20.0
MIB_PER_GB = 1024.0
"""NVML and nvidia-smi count in binary units, and so does SGLang's log where it says GB."""


def look_at_gpus() -> list[Gpu] | None:
    """Every GPU with who holds it, None when there is no way to know."""
    found = _from_nvml()
    return found if found is not None else _from_smi()


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
