from __future__ import annotations

import socket
import sys
import time
import uuid
from contextlib import closing

import pytest

from agent.adapters.sd_notify import NullNotifier, SdNotifier, make_notifier


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    """A service manager: its socket and the address that it gives to the service."""
    if request.param == "abstract" and sys.platform != "linux":
        pytest.skip("only Linux has abstract sockets")
    address = str(tmp_path / "notify") if request.param == "path" else f"@device-agent-{uuid.uuid4()}"
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listener:
        listener.bind(address if address.startswith("/") else "\0" + address[1:])
        listener.settimeout(60)
        yield listener, address


@pytest.fixture
def notify():
    """Makes notifiers out of an environment, and closes them."""
    made = []

    def make(**environ: str):
        made.append(make_notifier(environ, process_id=42))
        return made[-1]

    yield make
    for notifier in made:
        if isinstance(notifier, SdNotifier):
            notifier.close()


def test_each_word_is_a_datagram(manager, notify):
    listener, address = manager
    notifier = notify(NOTIFY_SOCKET=address)
    notifier.ready()
    notifier.status("commands ok,\nreadings ok")
    notifier.alive()
    notifier.stopping()
    assert [listener.recv(4096) for _ in range(4)] == [
        b"READY=1",
        b"STATUS=commands ok, readings ok",
        b"WATCHDOG=1",
        b"STOPPING=1",
    ]


def test_the_watchdog_is_fed_twice_as_often_as_asked(manager, notify):
    environ = {"NOTIFY_SOCKET": manager[1], "WATCHDOG_USEC": "30000000"}
    assert notify(**environ).watchdog_interval_s == 15.0
    assert notify(**environ, WATCHDOG_PID="42").watchdog_interval_s == 15.0


@pytest.mark.parametrize(
    "environ",
    [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "41"}],
)
def test_a_watchdog_that_is_off_or_meant_for_another_process_is_not_fed(manager, notify, environ):
    assert notify(NOTIFY_SOCKET=manager[1], **environ).watchdog_interval_s is None


def test_a_reload_is_told_with_its_time(manager, notify):
    listener, address = manager
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notify(NOTIFY_SOCKET=address).reloading()
    first, second = listener.recv(4096).decode().split("\n")
    assert first == "RELOADING=1"
    assert before <= int(second.removeprefix("MONOTONIC_USEC=")) <= before + 600e6


def test_nobody_listens(notify):
    notifier = notify()
    assert isinstance(notifier, NullNotifier)
    for call in (notifier.ready, notifier.alive, notifier.stopping, notifier.reloading, lambda: notifier.status("x")):
        call()
    assert notifier.watchdog_interval_s is None


def test_an_address_of_another_kind_is_told_once_and_ignored(notify, caplog):
    assert isinstance(notify(NOTIFY_SOCKET="vsock:2:1234"), NullNotifier)
    assert "vsock:2:1234" in caplog.text


def test_a_manager_that_went_away_or_does_not_read_stops_nobody(manager, notify):
    listener, address = manager
    notifier = notify(NOTIFY_SOCKET=address)
    for _ in range(10_000):
        notifier.alive()
    listener.close()
    notifier.alive()
