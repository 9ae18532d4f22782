"""What the run wrote down for its audit: a ledger that is not whole."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.damage.run import INCONCLUSIVE, USAGE, Case, Kind, planted


def _cut(case: Case) -> None:
    path = case.run / "run.sqlite"
    path.write_bytes(path.read_bytes()[:5000])


def ledgers() -> Iterator[Kind]:
    kind = partial(planted, "ledgers")
    of_one = "DELETE FROM ledgers WHERE worker = 1"
    yield kind("one missing", lambda case: case.ledgers(of_one), INCONCLUSIVE, "3 of 6 devices have no ledger")
    killed = "UPDATE ledgers SET ended = 0 WHERE worker = 1"
    yield kind("one without its end", lambda case: case.ledgers(killed), INCONCLUSIVE, "has no end")
    gap = "INSERT INTO gaps VALUES (1, 1.0, 2.0, 7, 'the disk was full')"
    yield kind("a gap", lambda case: case.ledgers(gap), INCONCLUSIVE, "lacks 7 records from 1 s to 2 s: the disk was")
    yield kind("the database cut", _cut, USAGE, "run.sqlite", "damaged")
