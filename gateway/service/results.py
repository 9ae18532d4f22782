"""Results on their way to the service: by the extension where it is offered, else into the product's table."""

from __future__ import annotations

import logging
import threading
from typing import Final

from agent.adapters.http_uplink import HttpUplink
from agent.core.values import Report
from agent.errors import Conflict, Forbidden, NotFound, Refused, ServerFault, ServiceError, UnexpectedAnswer
from agent.ports import Clock
from agent.wire.device_client import DeviceClient
from agent.wire.extensions import COMMAND_RESULTS
from gateway.core.budget import Kind
from gateway.service.offer import UNKNOWN_LOOK_S, Offer
from gateway.service.worker import RequestSource
from gateway.store.service import StoreWriter
from gateway.store.values import StoredState, WaitingResult

_log = logging.getLogger(__name__)

_NO_COMMAND: Final = "command_not_found"
_LOOK_S: Final = 30.0
_TRIES: Final = 5
_TRIES_KEPT: Final = 1_000
_AFTER_S: Final = 60.0
_AWAY: Final = frozenset({502, 503, 504})

NO_HOME: Final = "no_home"
"""How the reason of a result begins that the service has no place for."""


class ResultRequests(RequestSource[WaitingResult]):
    """Reports the results of commands to the service, oldest first.

    Args:
        client: for the requests.
        offer: what the service offers.
        store: where results wait.
        clock: for waiting.
    """

    name = "results"
    kind = Kind.RESULTS

    def __init__(self, client: DeviceClient, offer: Offer, store: StoreWriter, clock: Clock) -> None:
        self._client = client
        self._offer = offer
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._in_hand: dict[int, tuple[str, str]] = {}
        self._products: dict[str, str | None] = {}
        self._tries: dict[int, tuple[int, float]] = {}
        self._due_s = 0.0

    def wake(self) -> bool:
        """Note that something new waits; True when that was not known."""
        with self._lock:
            was_idle = self._due_s > self._clock.now().monotonic_s
            self._due_s = 0.0
            return was_idle

    def due_at(self, now_s: float) -> float:
        """When :meth:`take` may have something, seconds on the monotonic clock; infinite until :data:`WAKE`."""
        return self._due_s if self._offer.is_known else max(self._due_s, now_s + UNKNOWN_LOOK_S)

    def take(self) -> WaitingResult | None:
        """The next item, for this worker alone until :meth:`release`; None when there is none.

        See :class:`RequestSource`. A command's progress and its end never travel at the same time.
        """
        with self._lock:
            self._due_s = self._clock.now().monotonic_s + _LOOK_S
            busy = dict(self._in_hand)
            # Others go first, and no result waits behind one that finds no home.
            later = {seq for seq, (_, until_s) in self._tries.items() if until_s > self._clock.now().monotonic_s}
        found = self._store.call(lambda store: store.commands.next_results(len(busy) + 1, busy.keys() | later))
        with self._lock:
            taken = set(self._in_hand.values())
            for waiting in found:
                if waiting.seq not in self._in_hand and (waiting.device_id, waiting.command_id) not in taken:
                    self._in_hand[waiting.seq] = (waiting.device_id, waiting.command_id)
                    self._due_s = 0.0
                    return waiting
        return None

    def release(self, item: WaitingResult) -> None:
        """The worker is done with the item, successful or not. See :class:`RequestSource`."""
        with self._lock:
            del self._in_hand[item.seq]
            self._due_s = 0.0

    def run(self, item: WaitingResult) -> None:
        """Make the request and store its outcome. See :class:`RequestSource`."""
        refusal, state = None, StoredState.REPORTED
        try:
            self._report(item)
        except NotFound as error:
            refusal = f"{NO_HOME}: {error}"  # no endpoint, no table
            if error.error == _NO_COMMAND:
                refusal, state = str(error), StoredState.UNKNOWN
        except (Conflict, Refused) as error:
            refusal = str(error)
        except ServiceError as error:
            refusal = self._tried(item, error)
            if refusal is None:
                raise
        if refusal is not None:
            _log.warning("command=%s device=%s its result is set aside: %s", item.command_id, item.device_id, refusal)
        now_s = self._clock.now().wall_s
        self._store.call(lambda store: store.commands.result_settled(item, refusal, state, now_s))
        with self._lock:
            self._tries.pop(item.seq, None)

    def _tried(self, item: WaitingResult, error: ServiceError) -> str | None:
        """Why the result is put aside now; None while it is tried again.

        Only an answer counts that may be about this result or its table. What speaks of the service as a whole, such
        as 503 or no answer, does not: all results wait for its end.
        """
        if not _may_be_its_own(error):
            return None
        with self._lock:
            tries = self._tries.get(item.seq, (0, 0.0))[0] + 1
            self._tries[item.seq] = tries, self._clock.now().monotonic_s + _AFTER_S * tries
            if len(self._tries) > _TRIES_KEPT:
                del self._tries[next(iter(self._tries))]
        return f"{NO_HOME}: {error}" if tries >= _TRIES else None

    def _report(self, item: WaitingResult) -> None:
        finished_s = item.finished_wall_s
        report = Report(item.command_id, item.status, item.result, item.error, None, finished_s)
        uplink = HttpUplink(self._client, item.device_id, self._product_of(item.device_id), self._offer)
        try:
            uplink.report(report)
        except Refused as error:
            # The result itself may be what it cannot take; how the command ended matters more.
            text = f"result_refused: {error}" if item.error is None else f"{item.error} (result refused: {error})"
            uplink.report(Report(item.command_id, item.status, None, text, None, finished_s))

    def _product_of(self, device_id: str) -> str | None:
        """The device's product, which only a plain server needs; listed once for all devices."""
        if self._offer.offers(COMMAND_RESULTS):
            return None
        if device_id not in self._products:
            listed = {device.device_id: device.product_id for device in self._client.devices() if device.device_id}
            self._products = {device_id: None, **listed}
        return self._products[device_id]


def _may_be_its_own(error: ServiceError) -> bool:
    """The answer may be about one result or its table, not about the whole service."""
    if isinstance(error, ServerFault):
        return error.status not in _AWAY
    return isinstance(error, UnexpectedAnswer | Forbidden) or type(error) is ServiceError
