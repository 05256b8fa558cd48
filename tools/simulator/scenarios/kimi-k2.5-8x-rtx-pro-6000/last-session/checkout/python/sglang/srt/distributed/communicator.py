"""Which all-reduce a layer uses: plain, or fused with the residual add and RMSNorm behind it."""

# Compute capabilities on which FlashInfer's fused all-reduce may be used.
FUSION_CAPABILITIES = ((9, 0), (10, 0), (10, 3))

# EXPERIMENT: try the fused kernel on RTX PRO 6000 (SM120) as well.
EXPERIMENTAL_FUSION_ON_SM120 = True

# Messages above this size are reduced without fusion.
FUSION_MAX_BYTES = 2 * 1024 * 1024


def fusion_allowed(capability: tuple[int, int]) -> bool:
    """Whether the fused all-reduce may be used on this GPU."""
    if capability[0] == 12:
        return EXPERIMENTAL_FUSION_ON_SM120
    return capability in FUSION_CAPABILITIES


def use_fused_all_reduce(requested: bool, capability: tuple[int, int], message_bytes: int) -> bool:
    """Whether one layer's all-reduce goes through the fused kernel."""
    return requested and fusion_allowed(capability) and message_bytes <= FUSION_MAX_BYTES
