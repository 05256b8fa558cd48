"""What a section of somebody's handoff is about, told from its heading or from a bold label."""

from __future__ import annotations

import re
from enum import Enum

from optagent.agent.markdown import plain


class About(Enum):
    """What the statements of a section are read as."""

    OBJECTIVE = "objective"
    PRINCIPLES = "principles"
    TRIED = "tried"
    LEARNED = "learned"
    DEAD_ENDS = "dead ends"
    STATE = "state"
    IN_FLIGHT = "in flight"
    NEXT = "next steps"
    QUESTIONS = "questions"


# In order: the first that matches decides, so what is not done stands before what is done.
_WORDS: tuple[tuple[About, str], ...] = (
    (About.TRIED, r"(?<!not )(?<!to be )(?:completed|resolved|finished)|what (?:is|was|has been) done"),
    (
        About.DEAD_ENDS,
        r"dead[- ]?ends?|did(?:n't| not) work|does(?:n't| not) work|what failed|failed (?:approach|attempt|experiment|idea)|"
        r"failures|(?:do not|don't) (?:re-?)?(?:try|retry|attempt|propose|repeat|revisit|re-enable)|what not to do|ruled out|"
        r"tried and (?:failed|rejected|reverted|blocked)|tested and failed|rejected (?:ideas|approaches)|anti-?patterns",
    ),
    (About.QUESTIONS, r"open questions?|questions? for|decisions? (?:needed|required|pending)|unknowns|clarif"),
    (
        About.IN_FLIGHT,
        r"in[- ](?:flight|progress)|blocked|blockers?|ongoing|currently (?:running|testing)|where (?:we|i) (?:stopped|left off)|"
        r"pending (?:launch|experiment|run)|unfinished",
    ),
    (
        About.NEXT,
        r"next (?:steps?|actions?|tasks?|goals?|session|up)|to-?dos?\b|remaining|outstanding|not (?:yet )?done|follow-?ups?|"
        r"backlog|action items|recommended (?:first|next)|what(?:'s| is) (?:left|next|missing|not)|after the|future work",
    ),
    (
        About.LEARNED,
        r"discover|learn(?:t|ed|ings?)|lessons?|key (?:evidence|finding|insight)|findings|insights|gotchas|takeaways|pitfalls|"
        r"root causes?|what we know|caveats|observations|known (?:issues|limitations)|fundamental limit",
    ),
    (
        About.PRINCIPLES,
        r"principles|invariants|ground rules|constraints|non-?negotiable|(?:working )?rules\b|guardrails",
    ),
    (
        About.STATE,
        r"current(?:ly)?\b|where (?:things|we|it) (?:stands?|are)|baseline|best (?:result|config)|live state|branch state|"
        r"headline|environment|set-?up|configuration|host\b|hardware|cluster|server|launch|deploy|tl;?dr|status\b|stack\b|"
        r"versions?\b|processes|how to (?:resume|run)",
    ),
    (
        About.TRIED,
        r"accomplish|complet|what (?:we|i) (?:did|built|tried|tested)|what was (?:built|tried|tested)|work done|done\b|tried|"
        r"attempts?\b|experiments?\b|changes? made|what worked|history|progress|results?\b|throughput|measure|benchmark|"
        r"optimi[sz]ations?",
    ),
    (About.OBJECTIVE, r"goals?\b|objectives?\b|mission|task\b|purpose|what (?:this|you|the task)"),
)
_PATTERNS = tuple((about, re.compile(rf"\b(?:{words})", re.IGNORECASE)) for about, words in _WORDS)


def about(heading: str) -> About | None:
    """What a heading announces; None when its words say nothing of the kind."""
    text = plain(heading)[:200].replace("’", "'")
    return next((what for what, pattern in _PATTERNS if pattern.search(text)), None)
