"""What the run wrote down for its audit: a ledger that is not whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tests.damage.run import INCONCLUSIVE, Case, Kind, planted


def _ledger_bytes(change: Callable[[bytes], bytes]) -> Callable[[Case], None]:
    return lambda case: case.ledger().write_bytes(change(case.ledger().read_bytes()))


def ledgers() -> Iterator[Kind]:
    kind = partial(planted, "ledgers")
    yield kind("one missing", lambda case: case.ledger(1).unlink(), INCONCLUSIVE, "3 of 6 devices have no ledger")
    yield kind("cut in the middle", _ledger_bytes(lambda data: data[: len(data) // 2]), INCONCLUSIVE, "has no end")
    yield kind(
        "a bit turned",
        _ledger_bytes(lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]),
        INCONCLUSIVE,
        "no end",
    )
