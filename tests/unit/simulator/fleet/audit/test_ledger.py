"""The ledger on disk: everything that was written down is read again, and what could not be is a gap."""

from __future__ import annotations

import contextlib
import sqlite3
import time

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.audit.ledger import LedgerGap, LedgerTarget, SqliteLedger, digest_document, digest_values


def target(path):
    return LedgerTarget(path, worker=0, first_device=0, devices=10, began_ms=1_700_000_000_000)


def rows(path, table):
    return list(sqlite3.connect(path).execute(f"SELECT * FROM {table} ORDER BY rowid"))


def send(ledger, device, *sequences, at_s=1.0):
    for sequence in sequences:
        ledger.reading_sent(device, sequence, 7, None, 0.5, at_s)


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_everything_comes_back_as_it_was_written_down(tmp_path):
    path = tmp_path / "a.sqlite"
    with contextlib.closing(SqliteLedger(target(path))) as ledger:
        ledger.reading_sent(3, 1, 0xFFFFFFFF, 1_700_000_000_123, 0.5, 1.25)
        ledger.reading_sent(3, 2, 5, None, 0.75, 1.25)
        ledger.readings("unanswered", 3, [2], 1.25)
        ledger.readings("resent", 3, [2], 1.25)
        ledger.readings("accepted", 3, [1, 2], 1.5)
        ledger.command("ordered", 4, "c-1", 1.0, digest=9)
        ledger.command("order_unanswered", 4, "", 1.1)
        ledger.command("received", 4, "c-1", 2.0, created_at=1_600_000_000.0)
        ledger.command("started", 4, "c-1", 3.0, detail="once", attempt=2)
        ledger.command("finished", 4, "c-1", 4.0, detail="rejected", digest=8)
        ledger.command("reported", 4, "c-\ud800", 5.0)
    assert ledger.counts == {"sent": 2, "unanswered": 1, "resent": 1, "accepted": 2} | dict.fromkeys(
        ("ordered", "order_unanswered", "received", "started", "finished", "reported"), 1
    )
    assert rows(path, "sendings") == [(3, 1, 1250, 500, 1_700_000_000_123, 0xFFFFFFFF), (3, 2, 1250, 750, None, 5)]
    assert rows(path, "answers") == [
        ("unanswered", 3, 2, 1250),
        ("resent", 3, 2, 1250),
        ("accepted", 3, 1, 1500),
        ("accepted", 3, 2, 1500),
    ]
    assert rows(path, "command_events") == [
        ("ordered", 4, "c-1", 1000, None, 0, 9),
        ("order_unanswered", 4, "", 1100, None, 0, None),
        ("received", 4, "c-1", 2000, "older", 0, None),
        ("started", 4, "c-1", 3000, "once", 2, None),
        ("finished", 4, "c-1", 4000, "rejected", 0, 8),
        ("reported", 4, "c-\\ud800", 5000, None, 0, None),
    ]
    assert rows(path, "ledgers") == [(0, 0, 10, 1)]


def full(ledger, *, is_full):
    """A disk that takes no page more."""
    pages = ledger.database.execute("PRAGMA page_count").fetchone()[0] if is_full else 10**6
    ledger.database.execute(f"PRAGMA max_page_count = {pages}")


def test_a_full_disk_makes_a_gap_and_the_ledger_goes_on_when_there_is_room(tmp_path):
    path = tmp_path / "a.sqlite"
    with contextlib.closing(SqliteLedger(target(path))) as ledger:
        send(ledger, 1, 1)
        ledger.flush()
        wait_for(lambda: rows(path, "sendings"))
        full(ledger, is_full=True)
        send(ledger, 1, *range(2, 1002), at_s=2.0)
        ledger.flush()
        wait_for(lambda: ledger.gap)
        full(ledger, is_full=False)
        send(ledger, 1, 1002, at_s=3.0)
    gap = LedgerGap(1.0, 2.0, 1000, "the ledger could not be written: database or disk is full")
    assert ledger.gap == gap
    assert ledger.counts["sent"] == 1002
    assert rows(path, "gaps") == [(0, 1.0, 2.0, 1000, gap.reason)]
    assert [row[1] for row in rows(path, "sendings")] == [1, 1002]


def test_a_disk_that_hangs_is_a_gap_and_memory_stays_bounded(tmp_path):
    path = tmp_path / "a.sqlite"
    ledger = SqliteLedger(target(path))
    ledger.database.execute("PRAGMA busy_timeout = 60000")
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        for second in range(40):
            send(ledger, 1, second + 1, at_s=float(second))
            ledger.flush()
        missed = ledger.gap.records
        assert missed >= 40 - 18
        other.execute("ROLLBACK")
    assert ledger.close() == missed
    assert len(rows(path, "sendings")) == 40 - missed
    assert rows(path, "gaps")


def test_a_ledger_is_never_written_over_and_says_what_to_do(tmp_path):
    SqliteLedger(target(tmp_path / "a.sqlite")).close()
    with pytest.raises(ConfigurationError, match="--out"):
        SqliteLedger(target(tmp_path / "a.sqlite"))


def test_a_digest_is_of_values_whatever_their_order_or_form():
    assert digest_values({"a": 1, "b": 2.5}) == digest_values({"b": 2.5, "a": 1.0})
    assert digest_values({"a": -0.0}) == digest_values({"a": 0})
    assert digest_document({"a": [1.0, {"b": 2, "c": None}]}) == digest_document({"a": [1, {"c": None, "b": 2.0}]})
    assert digest_document({"a": 1}) != digest_document({"a": "1"})


@pytest.mark.parametrize(
    "altered", [{"a": 1.0000000000000002}, {"b": 1.0}, {"a": 1.0, "b": 0.0}, {}, {"a": True}, {"a": "1.0"}, {"a": None}]
)
def test_a_digest_tells_every_kind_of_alteration(altered):
    assert digest_values(altered) != digest_values({"a": 1.0})


def test_a_digest_can_be_made_of_any_json_value():
    assert len({digest_values({"a": value}) for value in (10**400, "\udc80", [1], {"b": 1}, None)}) == 5
