"""The ranked plan: reading it, checking it, and writing statuses back without touching its prose."""
