"""What became of a request, in few enough classes to keep a histogram of each; and what went out before it."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Final


class OutcomeClass(StrEnum):
    """How an exchange ended. 429 is a class of its own: answered in a millisecond, it would lower every percentile."""

    OK = "ok"
    LIMITED = "limited"
    """429: the quota."""
    REFUSED = "refused"
    """Any other 4xx: what was sent is wrong, or meant to be."""
    SERVER_ERROR = "server_error"
    """5xx."""
    TIMEOUT = "timeout"
    """No answer in time. The request may have been carried out."""
    TRANSPORT = "transport"
    """Not connected, refused, reset or closed. The request may have been carried out."""
    UNEXPECTED = "unexpected"
    """An answer that is not the service's: not HTTP, a redirect, a page of somebody else."""


REFUSALS: Final = frozenset({OutcomeClass.LIMITED, OutcomeClass.REFUSED})
"""The service had the request and did not carry it out."""
FAILED: Final = frozenset(OutcomeClass) - {OutcomeClass.OK, OutcomeClass.LIMITED}
"""What counts as an error; 429 does not: it is the quota at work."""
WAITED: Final = frozenset({OutcomeClass.OK, OutcomeClass.TIMEOUT})
"""What times are made of: a request that was never answered has waited, too."""
HELD: Final = frozenset({"http.long_poll"})
"""Operations that the service holds on purpose: what they take says nothing about how quick it is."""


class Attempt(Enum):
    """What went out before a request. Both others than the first are *resends*; what never left was no attempt."""

    FIRST = "first"
    """Nothing: the service cannot have it."""
    AFTER_REFUSAL = "after_refusal"
    """The same, and all of it was refused (429, another 4xx): the service surely has not stored it."""
    AMBIGUOUS = "ambiguous"
    """The same, at least once without an answer that decides (none at all, 5xx): the service may have stored it."""

    def again(self, *, refused: bool) -> Attempt:
        """What the next attempt is, once this one went out; ``refused``: the service surely did not take it."""
        return Attempt.AFTER_REFUSAL if refused and self is not Attempt.AMBIGUOUS else Attempt.AMBIGUOUS


_LIMITED: Final = 429
_UNCHANGED: Final = 304
_OF_HUNDREDS: Final = {2: OutcomeClass.OK, 4: OutcomeClass.REFUSED, 5: OutcomeClass.SERVER_ERROR}


def class_of(status: int) -> OutcomeClass:
    """The class of a status code."""
    if status == _LIMITED:
        return OutcomeClass.LIMITED
    if status == _UNCHANGED:
        return OutcomeClass.OK
    return _OF_HUNDREDS.get(status // 100, OutcomeClass.UNEXPECTED)
