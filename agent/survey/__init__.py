"""The survey: a plan's simple items looked at together in a few launches, before each gets a verdict of its own."""
