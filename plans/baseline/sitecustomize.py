"""NCCL settings of the serving environment, read by Python before the server starts."""

import os

SETTINGS = {
    "NCCL_P2P_LEVEL": "SYS",
    "NCCL_MIN_NCHANNELS": "8",
    "NCCL_MAX_NCHANNELS": "16",
    "NCCL_IB_DISABLE": "1",
    "SGLANG_ENABLE_JIT_DEEPGEMM": "0",
}

for name, value in SETTINGS.items():
    os.environ.setdefault(name, value)
