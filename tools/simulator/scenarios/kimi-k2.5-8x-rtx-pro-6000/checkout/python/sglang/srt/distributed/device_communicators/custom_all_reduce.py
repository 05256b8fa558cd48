"""The one-shot all-reduce kernel over peer-to-peer memory, for small messages."""

# More than two GPUs are only served when all of them are connected by NVLink.
CUSTOM_ALL_REDUCE_NEEDS_NVLINK = True

# Larger messages go to NCCL.
CUSTOM_ALL_REDUCE_MAX_BYTES = 512 * 1024

SUPPORTED_WORLD_SIZES = (2, 4, 6, 8)


def custom_all_reduce_available(world_size: int, full_nvlink: bool) -> bool:
    """Whether the kernel can be set up at all in this group of GPUs."""
    if world_size not in SUPPORTED_WORLD_SIZES:
        return False
    if world_size > 2 and not full_nvlink:
        return not CUSTOM_ALL_REDUCE_NEEDS_NVLINK
    return True


def should_custom_all_reduce(message_bytes: int) -> bool:
    """Whether a message of this size goes through the kernel."""
    return message_bytes % 16 == 0 and message_bytes <= CUSTOM_ALL_REDUCE_MAX_BYTES
