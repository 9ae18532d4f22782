"""Receipts on their way to devices: what was committed together is sent together, and none is dropped.

A receipt waits here while the broker takes no more, and its message stays unacknowledged until then. So the broker
hands the gateway no more messages than it can answer, and a device that sends thousands at once gets every receipt.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from agent.adapters.mqtt_session import Arrival, Message
from agent.threads import OnCrash, WatchedThread, only_logged
from agent.wire import topics
from agent.wire.limits import BATCH_MAX
from agent.wire.mqtt_messages import Receipt, encode

KEYS_MAX: Final = BATCH_MAX
"""At most so many keys of several messages share a receipt; one message's own keys are never split."""

# The broker acknowledges within milliseconds, so room comes soon; a connection comes when it comes.
_AGAIN_S: Final = 0.02
_AGAIN_OFFLINE_S: Final = 1.0


class ReceiptSender:
    """A thread that sends receipts and then acknowledges the messages they are about.

    Args:
        post: hands a message to the broker; False when it cannot now.
        acknowledge: acknowledges a message to the broker.
        is_up: there is a connection.
        on_crash: see :class:`~agent.threads.WatchedThread`.
    """

    def __init__(
        self,
        post: Callable[[Message], bool],
        acknowledge: Callable[[Arrival], None],
        is_up: Callable[[], bool],
        on_crash: OnCrash = only_logged,
    ) -> None:
        self._post = post
        self._acknowledge = acknowledge
        self._is_up = is_up
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[tuple[Receipt, Arrival]]] = {}
        self._stopping = False
        self._thread = WatchedThread(self._run, name="mqtt-receipts", on_crash=on_crash)

    def start(self) -> None:
        """Begin to send receipts."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """End; True when the thread has ended in time. A device without its receipt sends the message again."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        return self._thread.has_ended(timeout_s)

    def send(self, device_id: str, receipt: Receipt, arrival: Arrival) -> None:
        """Queue the receipt for the device; the message is acknowledged after that."""
        with self._changed:
            self._waiting.setdefault(device_id, deque()).append((receipt, arrival))
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                if self._stopping:
                    return
                device_id = next(iter(self._waiting))
                items = self._waiting.pop(device_id)
            if self._send(device_id, items):
                continue
            again_s = _AGAIN_S if self._is_up() else _AGAIN_OFFLINE_S
            with self._changed:
                # In front of what came meanwhile for this device; other devices come first.
                items.extend(self._waiting.pop(device_id, ()))
                self._waiting[device_id] = items
                self._changed.wait_for(lambda: self._stopping, again_s)

    def _send(self, device_id: str, items: deque[tuple[Receipt, Arrival]]) -> bool:
        """False when the broker takes no more; what was not sent stays in ``items``."""
        while items:
            count = _fit_one_receipt(receipt for receipt, _ in items)
            together = [items[number] for number in range(count)]
            message = Message(topics.receipts(device_id), encode(_joined([receipt for receipt, _ in together])))
            if not self._post(message):
                return False
            for _, arrival in together:
                items.popleft()
                self._acknowledge(arrival)
        return True


def _fit_one_receipt(receipts: Iterable[Receipt]) -> int:
    """How many of them, from the first on, fit into one."""
    keys = count = 0
    for receipt in receipts:
        keys += len(receipt.stored) + len(receipt.refused)
        if count and keys > KEYS_MAX:
            break
        count += 1
    return count


def _joined(receipts: list[Receipt]) -> Receipt:
    stored = dict.fromkeys(key for receipt in receipts for key in receipt.stored)
    refused = tuple(refusal for receipt in receipts for refusal in receipt.refused)
    return Receipt(stored=tuple(stored), refused=refused)
