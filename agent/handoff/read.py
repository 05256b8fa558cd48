"""Reads a handoff: optagent's own by its front matter, anybody else's as far as it goes."""

from __future__ import annotations

from optagent.agent.errors import BadInput
from optagent.agent.handoff.model import Handoff


def read_handoff(text: str, name: str = "handoff") -> Handoff:
    """The handoff in `text`; `name` stands in messages and in the evidence of what a free-form document says.

    Raises BadInput when there is nothing in it, or when it claims to be optagent's own format and is broken, cut off, or of
    a newer version. Everything else is read as a free-form document, in which nothing counts as verified.
    """
    from optagent.agent.handoff.front_matter import find_front_matter, read_front_matter

    if not text.strip("\ufeff \t\r\n\0"):
        raise BadInput(name, "this handoff is empty: restore it, or take it out of the folder", 1)
    front = find_front_matter(text, name)
    if front is not None:
        return read_front_matter(front, name)
    from optagent.agent.handoff.free_form import read_free_form

    return read_free_form(text, name)
