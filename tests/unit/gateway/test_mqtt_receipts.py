"""Receipts: what waits together goes together, nothing is dropped, and the acknowledgement comes last."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from agent.adapters.mqtt_session import Arrival, Message
from agent.wire import topics
from agent.wire.mqtt_messages import Receipt, Refusal, read_receipt
from gateway.mqtt.receipts import KEYS_MAX, ReceiptSender

SOON_S = 60.0


class Broker:
    """Takes receipts while it is open.

    Attributes:
        events: ``(topic, receipt)`` and the ids of acknowledged messages, in order.
    """

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.is_open = threading.Event()
        self.refused = threading.Event()
        self._changed = threading.Condition()

    def post(self, message: Message) -> bool:
        if not self.is_open.is_set():
            self.refused.set()
            return False
        self._note((message.topic, read_receipt(message.payload)))
        return True

    def acknowledge(self, arrival: Arrival) -> None:
        self._note(arrival.mid)

    def wait_for(self, *mids: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: set(mids) <= set(self.acknowledged), SOON_S), self.events

    @property
    def acknowledged(self) -> list[int]:
        return [event for event in self.events if isinstance(event, int)]

    @property
    def receipts(self) -> list[tuple[str, Receipt]]:
        return [event for event in self.events if not isinstance(event, int)]

    def _note(self, event: Any) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()


class Bench:
    def __init__(self) -> None:
        self.broker = Broker()
        self.sender = ReceiptSender(self.broker.post, self.broker.acknowledge, lambda: True)
        self.sender.start()

    def send(self, device_id: str, mid: int, *keys: str, refused: tuple[Refusal, ...] = ()) -> None:
        arrival = Arrival("t", b"", 1, False, None, mid)  # type: ignore[arg-type]  # no session is needed here
        self.sender.send(device_id, Receipt(stored=keys, refused=refused), arrival)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    assert bench.sender.stop(SOON_S)


def test_what_waits_for_the_broker_is_told_together_once_per_device_and_acknowledged_after_that(bench):
    bench.send("d1", 1, "a")
    assert bench.broker.refused.wait(SOON_S)
    bench.send("d1", 2, "b", "a")
    bench.send("d2", 3, "c")
    bench.send("d1", 4, refused=(Refusal(key="d", error="validation_error"),))
    assert bench.broker.events == []
    bench.broker.is_open.set()
    bench.broker.wait_for(1, 2, 3, 4)
    told = dict(bench.broker.receipts)
    assert len(bench.broker.receipts) == 2
    assert told[topics.receipts("d1")].stored == ("a", "b")
    assert [each.key for each in told[topics.receipts("d1")].refused] == ["d"]
    assert told[topics.receipts("d2")].stored == ("c",)
    assert not isinstance(bench.broker.events[0], int)


def test_a_receipt_stays_small_and_a_messages_own_keys_stay_together(bench):
    bench.send("d1", 0, "first")
    assert bench.broker.refused.wait(SOON_S)
    many = tuple(f"k{number}" for number in range(KEYS_MAX))
    bench.send("d1", 1, *many)
    bench.send("d1", 2, "last")
    bench.broker.is_open.set()
    bench.broker.wait_for(0, 1, 2)
    assert [receipt.stored for _, receipt in bench.broker.receipts] == [("first",), many, ("last",)]


def test_it_ends_while_the_broker_takes_nothing(bench):
    bench.send("d1", 1, "a")
    assert bench.broker.refused.wait(SOON_S)
    assert bench.sender.stop(SOON_S)
    assert bench.broker.events == []
