"""Requests under an ``Idempotency-Key`` where the service takes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from agent.adapters.discovery import Discovery
from agent.errors import ErrorAnswer, Refused, ServerFault
from agent.wire.extensions import IDEMPOTENCY_KEY

AnswerT = TypeVar("AnswerT")

# What a server answers that cannot take a header: bad request, precondition failed, header too large, not implemented.
_REFUSALS: Final = frozenset({400, 412, 431, 501})


class Keyed:
    """Sends under a key; once without it to a service that refuses the first one, and then never with one again.

    Args:
        discovery: what the service offers.
    """

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery
        self._is_accepted = False

    def send(self, key: str, send: Callable[[str | None], AnswerT]) -> AnswerT:
        """The answer of ``send``, which is called with the key, or with None where the service takes none.

        Raises:
            ServiceError: what ``send`` raised; of a refusal with and without the key, the first.
        """
        if not self._discovery.offers(IDEMPOTENCY_KEY):
            return send(None)
        try:
            answer = send(key)
        except (Refused, ServerFault) as error:
            if self._is_accepted or error.status not in _REFUSALS:
                raise
            refusal: ErrorAnswer = error
        else:
            self._is_accepted = True
            return answer
        try:
            answer = send(None)
        except (Refused, ServerFault):
            raise refusal from None
        self._discovery.withdraw(IDEMPOTENCY_KEY, str(refusal))
        return answer
