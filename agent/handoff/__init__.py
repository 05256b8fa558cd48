"""The handoff: the document the next sitting starts from. Rendered from the journal, read back, and held to its word."""
