from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent.adapters import clocks
from agent.adapters.clocks import SystemClock, read_boot_id


def test_both_clocks_go_on_and_the_boot_stays_the_same():
    clock = SystemClock()
    first, second = clock.now(), clock.now()
    assert second.monotonic_s >= first.monotonic_s > 0
    assert abs(second.wall_s - time.time()) < 60
    assert first.boot_id == second.boot_id != ""


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no clock that counts suspend")
def test_time_asleep_counts():
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    now_s = SystemClock().now().monotonic_s
    assert before <= now_s <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_system_without_that_clock_uses_the_plain_one(monkeypatch):
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    before = time.monotonic()
    assert before <= SystemClock("boot").now().monotonic_s <= time.monotonic()


@pytest.mark.skipif(not Path("/proc/sys/kernel/random/boot_id").exists(), reason="only Linux has this file")
def test_two_clocks_of_one_boot_agree_on_it():
    assert SystemClock().now().boot_id == SystemClock().now().boot_id


def test_a_system_without_a_boot_id_gets_one_for_this_process(tmp_path, monkeypatch):
    monkeypatch.setattr(clocks, "_boot_session", lambda: "")
    first, second = read_boot_id(tmp_path / "none"), read_boot_id(tmp_path / "none")
    assert first.startswith("process-")
    assert first != second


def test_the_boot_id_is_the_files_one_line(tmp_path):
    (tmp_path / "boot_id").write_text("0c8f1a4e\n")
    assert read_boot_id(tmp_path / "boot_id") == "0c8f1a4e"


def test_the_marker_of_a_time_service_says_that_the_clock_is_right(tmp_path):
    (tmp_path / "synchronized").touch()
    assert clocks.is_synchronized(tmp_path / "synchronized")


@pytest.mark.parametrize("kernel_says", [True, False])
def test_without_the_marker_the_kernel_is_asked(tmp_path, monkeypatch, kernel_says):
    monkeypatch.setattr(clocks, "_kernel_says_synchronized", lambda: kernel_says)
    assert clocks.is_synchronized(tmp_path / "none") is kernel_says


def test_the_kernel_can_be_asked_and_says_no_where_it_cannot(monkeypatch):
    assert clocks._kernel_says_synchronized() in {True, False}
    monkeypatch.setattr(clocks.sys, "platform", "darwin")
    assert not clocks._kernel_says_synchronized()


def test_time_asleep_is_never_negative_beyond_the_moment_between_two_looks():
    assert clocks.asleep_s() > -1e-3
