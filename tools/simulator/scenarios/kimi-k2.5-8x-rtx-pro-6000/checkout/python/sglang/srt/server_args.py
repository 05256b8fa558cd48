"""Defaults that are settled when the server's arguments are read."""

# Switch FlashInfer's fused all-reduce on when the command line does not ask for it.
FLASHINFER_ALLREDUCE_FUSION_BY_DEFAULT = False


def flashinfer_allreduce_fusion(requested: bool) -> bool:
    """Whether the fused all-reduce is wanted."""
    return requested or FLASHINFER_ALLREDUCE_FUSION_BY_DEFAULT
