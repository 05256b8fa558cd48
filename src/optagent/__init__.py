"""optagent: an optimisation campaign of an SGLang deployment, carried from handoff to handoff."""

__version__ = "0.1.0"
