from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from simulator.interrupts import interrupts_afterwards, terminations_as_interrupts, without_interrupts

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def same_handlers_afterwards() -> Iterator[None]:
    hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a build without a terminal may have switched it off
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    after = [signal.getsignal(number) for number in SIGNALS]
    signal.signal(signal.SIGHUP, hangup)
    assert after == before


@pytest.mark.parametrize("number", SIGNALS)
def test_no_signal_interrupts_the_tidying_up(number):
    with terminations_as_interrupts(), without_interrupts():
        signal.raise_signal(number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_in_the_middle_interrupts_when_everything_is_done(number):
    done = []

    def work() -> None:
        with terminations_as_interrupts(), interrupts_afterwards():
            signal.raise_signal(number)
            done.append(number)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [number]


def test_a_second_signal_interrupts_at_once_what_may_wait_for_ever():
    done = []

    def work() -> None:
        with interrupts_afterwards():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
                signal.raise_signal(number)
                done.append(number)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [signal.SIGINT]


def test_a_hangup_that_nohup_has_switched_off_stays_off():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminations_as_interrupts(), interrupts_afterwards():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
