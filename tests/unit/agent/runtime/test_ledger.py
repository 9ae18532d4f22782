from __future__ import annotations

from agent.runtime.ledger import DAYS_KEPT, SETTING, UNDATED, Ledger, read_days, written_bytes
from tests.fakes import FakeClock

DAY_S = 86_400.0


class Bench:
    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.written: int | None = 0
        self.ledger = Ledger(self.clock, lambda: self.written)


def test_bytes_are_counted_by_day():
    bench = Bench()
    bench.ledger.count(100, 20)
    bench.ledger.count(5, 0)
    bench.written = 4096
    assert bench.ledger.snapshot() == {"2026-01-01": (105, 20, 4096)}
    bench.clock.advance(DAY_S)
    bench.written = 5000
    bench.ledger.count(1, 1)
    assert bench.ledger.snapshot() == {"2026-01-01": (105, 20, 4096), "2026-01-02": (1, 1, 904)}


def test_seven_days_are_kept():
    bench = Bench()
    for _ in range(10):
        bench.ledger.count(1, 1)
        bench.clock.advance(DAY_S)
    assert len(bench.ledger.snapshot()) == DAYS_KEPT
    assert min(bench.ledger.snapshot()) == "2026-01-05"


def test_it_boards_once_an_hour_and_only_when_something_changed():
    bench = Bench()
    bench.ledger.count(1, 1)
    assert bench.ledger.pending() is None
    bench.clock.advance(3600.0)
    first = bench.ledger.pending()
    assert first == (SETTING, '{"2026-01-01":[1,1,0]}')
    # The commit failed: it boards again.
    assert bench.ledger.pending() == first
    bench.ledger.committed()
    assert bench.ledger.pending() is None
    assert bench.ledger.pending(last=True) is None
    bench.ledger.count(1, 1)
    assert bench.ledger.pending() is None
    assert bench.ledger.pending(last=True) is not None


def test_a_restart_goes_on_counting():
    bench = Bench()
    bench.ledger.count(10, 20)
    _, text = bench.ledger.pending(last=True) or ("", "")
    again = Bench(bench.clock)
    again.ledger.load(text)
    again.ledger.count(1, 2)
    assert again.ledger.snapshot() == {"2026-01-01": (11, 22, 0)}


def test_what_is_counted_before_the_clock_is_set_has_no_date():
    bench = Bench(FakeClock(wall_s=1000.0))
    bench.ledger.count(1, 2)
    assert bench.ledger.snapshot() == {UNDATED: (1, 2, 0)}


def test_a_system_that_counts_no_writes_counts_the_rest():
    bench = Bench()
    bench.written = None
    bench.ledger.count(1, 2)
    assert bench.ledger.snapshot() == {"2026-01-01": (1, 2, 0)}


def test_a_setting_that_cannot_be_read_is_nothing():
    for text in (None, "", "[]", "{", '{"2026-01-01":[1]}', '{"2026-01-01":"x"}', "7"):
        assert read_days(text) == {}


def test_the_kernels_count_of_this_process_is_read(tmp_path):
    told = tmp_path / "io"
    told.write_text("rchar: 1\nwchar: 2\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n")
    assert written_bytes(told) == 8192
    assert written_bytes(tmp_path / "nothing") is None
    told.write_text("write_bytes: x\n")
    assert written_bytes(told) is None
