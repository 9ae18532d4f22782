"""Copies of a body that go out beside it (the fault ``duplicates``), and exchanges that nobody waits for.

The same over HTTP and MQTT: which copies there are, when they go and what is written down of them. How a copy gets a
key of its own is the transport's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from simulator.fleet.device.http_codec import Request
from simulator.fleet.device.model import Observer, SharedSettings
from simulator.fleet.engine.mqtt import class_of_reason
from simulator.fleet.engine.ports import Headers
from simulator.fleet.engine.wheel import Wheel
from simulator.fleet.outcomes import Attempt, OutcomeClass, class_of

_SUFFIX: Final = "-copy-{}"


def send_copies(
    request: Request,
    device: int,
    fleet: SharedSettings,
    wheel: Wheel,
    now_s: float,
    *,
    renamed: Callable[[Request, str], Request],
    send: Callable[[Request, float], None],
) -> None:
    """Send the copies of a request, each at its time; nobody waits for what comes of them.

    Args:
        request: what went out just now.
        device: whose, its index in the fleet.
        fleet: whose ledger gets the copies that the service can recognise. One with a key of its own is a new
            reading for everybody: the audit has to find it doubled.
        wheel: for their times.
        now_s: this instant, on the monotonic clock.
        renamed: the request with this at the end of every key.
        send: sends one that was due at a time.
    """
    for number, copy in enumerate(request.copies, 1):
        again = request._replace(body=copy.content, copies=())
        if copy.same_key:
            fleet.ledger.readings("resent", device, request.keys, now_s - fleet.began_s)
        else:
            again = renamed(again, _SUFFIX.format(number))
        due_s = now_s + copy.delay_s
        if copy.delay_s > 0:
            wheel.at(due_s, partial(send, again, due_s))
        else:
            send(again, due_s)


class MeasuredOnly:
    """An exchange under way that is measured, and nothing else: a caller of both engines.

    Args:
        observer: called with the exchange.
        operation: what it is measured as.
        device: whose, its index in the fleet.
        due_s: when it was to go, on the monotonic clock; None for whatever goes at once.
        attempt: of a copy ``AMBIGUOUS``: the service may have what it is a copy of.
    """

    __slots__ = ("_attempt", "_device", "_due_s", "_observer", "_operation")

    def __init__(self, observer: Observer, operation: str, device: int, due_s: float | None, attempt: Attempt) -> None:
        self._observer = observer
        self._operation = operation
        self._device = device
        self._due_s = due_s
        self._attempt = attempt

    def answered(
        self,
        status: int,
        headers: Headers,
        body: bytes,
        sent_s: float,
        now_s: float,
    ) -> None:
        """The answer came. See :class:`~simulator.fleet.engine.ports.Caller`."""
        self._count(class_of(status), sent_s, now_s)

    def acknowledged(self, code: int, sent_s: float, now_s: float) -> None:
        """PUBACK came. See :class:`~simulator.fleet.engine.mqtt.Publisher`."""
        self._count(class_of_reason(code), sent_s, now_s)

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """See either; measured as what was sent."""
        del reason
        self._count(outcome, sent_s, now_s)

    def _count(self, outcome: OutcomeClass, sent_s: float | None, now_s: float) -> None:
        due_s = self._due_s
        if due_s is None:
            due_s = now_s if sent_s is None else sent_s
        self._observer.exchanged(
            self._operation,
            outcome,
            self._device,
            intended_s=due_s,
            ready_s=due_s,
            sent_s=sent_s,
            now_s=now_s,
            attempt=self._attempt,
        )
