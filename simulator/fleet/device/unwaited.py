"""Exchanges that nobody waits for: copies of a body (the fault ``duplicates``), and a device's greeting over MQTT."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from simulator.fleet.device.http_messages import Request
from simulator.fleet.device.model import Exchange, Observer
from simulator.fleet.engine.mqtt import class_of_reason
from simulator.fleet.engine.ports import Headers
from simulator.fleet.outcomes import Attempt, OutcomeClass, class_of

if TYPE_CHECKING:  # a device sends copies
    from simulator.fleet.device.device import Device


def send_copies(
    device: Device,
    request: Request,
    renamed: Callable[[Request, str], Request],
    send: Callable[[Request, float], None],
) -> None:
    """Send the copies of a request that went out just now, each at its time.

    Those that the service can recognise are written down; one with a key of its own is a new reading for everybody:
    the audit has to find it doubled.

    Args:
        device: whose request it is.
        request: with its copies.
        renamed: the request with this at the end of every key.
        send: sends one that was due at a time.
    """
    driver, fleet = device.driver, device.fleet
    now_s = driver.clocks.monotonic()
    for number, copy in enumerate(request.copies, 1):
        again = request._replace(body=copy.content, copies=())
        if not copy.same_key:
            again = renamed(again, f"-copy-{number}")
        else:
            fleet.ledger.readings("resent", device.index, request.keys, now_s - fleet.began_s)
        due_s = now_s + copy.delay_s
        if copy.delay_s > 0:
            driver.wheel.at(due_s, partial(send, again, due_s))
        else:
            send(again, due_s)


class Unwaited:
    """An exchange under way that is measured, and nothing else: a caller of both engines.

    Args:
        observer: called with the exchange.
        operation: what it is measured as.
        device: whose, its index in the fleet.
        due_s: when a copy was to go, on the monotonic clock: the service may have what it is a copy of. None for
            whatever goes at once, and for the first time.
    """

    is_wanted = True
    __slots__ = ("_device", "_due_s", "_observer", "_operation")

    def __init__(self, observer: Observer, operation: str, device: int, due_s: float | None) -> None:
        self._observer = observer
        self._operation = operation
        self._device = device
        self._due_s = due_s

    def answered(self, status: int, headers: Headers, body: bytes, sent_s: float, now_s: float) -> None:
        """See :class:`~simulator.fleet.engine.ports.Caller`."""
        self.failed(class_of(status), "", sent_s, now_s)

    def acknowledged(self, code: int, sent_s: float, now_s: float) -> None:
        """See :class:`~simulator.fleet.engine.mqtt.Publisher`."""
        self.failed(class_of_reason(code), "", sent_s, now_s)

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """See either; however it ended, it is measured."""
        due_s = self._due_s
        if due_s is None:
            due_s = now_s if sent_s is None else sent_s
        attempt = Attempt.FIRST if self._due_s is None else Attempt.AMBIGUOUS
        self._observer.exchanged(Exchange(self._operation, outcome, self._device, due_s, due_s, sent_s, now_s, attempt))
