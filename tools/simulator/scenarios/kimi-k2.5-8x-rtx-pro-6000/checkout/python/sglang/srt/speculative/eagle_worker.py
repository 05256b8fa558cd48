"""One EAGLE iteration: draft, verify, accept."""

# The host waits for the accepted lengths after each verify step before it prepares the next draft.
SYNC_HOST_AFTER_VERIFY = True


def accepted_lengths_on_host() -> bool:
    """Whether the accepted lengths are copied to the host between verify and the next draft."""
    return SYNC_HOST_AFTER_VERIFY
