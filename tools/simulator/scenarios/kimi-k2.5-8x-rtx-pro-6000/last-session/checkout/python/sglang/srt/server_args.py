"""Defaults that are settled when the server's arguments are read."""

# Switch FlashInfer's fused all-reduce on when the command line does not ask for it.
# EXPERIMENT: on without a flag, for the RTX PRO 6000 trial.
FLASHINFER_ALLREDUCE_FUSION_BY_DEFAULT = True


def flashinfer_allreduce_fusion(requested: bool) -> bool:
    """Whether the fused all-reduce is wanted."""
    return requested or FLASHINFER_ALLREDUCE_FUSION_BY_DEFAULT
