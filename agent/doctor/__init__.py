"""What state a campaign is in, looked at piece by piece without changing any, and what can be repaired."""
