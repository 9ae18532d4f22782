"""A broker of one's own, on a port that somebody else may take just before it listens."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from agent.errors import ConfigurationError
from simulator.children import ChildFailed
from simulator.gateway import broker
from simulator.gateway.broker import find_mosquitto, running_broker
from tests.conftest import require_program
from tests.support.ports import free_port


@pytest.fixture
def taken() -> Iterator[int]:
    """Somebody else's port, who listens there."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@pytest.mark.parametrize("name", ["mosquitto", "amqtt"])
def test_a_broker_that_loses_its_port_to_another_process_takes_the_next_one(name, taken, tmp_path, monkeypatch):
    if name == "amqtt":
        monkeypatch.setattr(broker, "find_mosquitto", lambda: None)
    elif find_mosquitto() is None:
        require_program("mosquitto")
    ports = iter((taken, taken, free := free_port()))
    monkeypatch.setattr(broker, "_free_port", lambda: next(ports))
    with running_broker(tmp_path / "broker", tmp_path / "log") as running:
        assert running.name.startswith(name)
        assert running.port == free
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", free)).close()
    socket.create_server(("127.0.0.1", free)).close()


def test_a_broker_that_finds_no_port_at_all_says_so_in_the_end(taken, tmp_path, monkeypatch):
    if find_mosquitto() is None:
        require_program("mosquitto")
    tried = []
    monkeypatch.setattr(broker, "_free_port", lambda: tried.append(taken) or taken)
    with pytest.raises(ChildFailed, match="Address already in use"), running_broker(tmp_path, tmp_path / "log"):
        pytest.fail("it listens on a port that somebody else has")
    assert len(tried) == 5


def test_a_broker_keeps_its_port_over_a_restart_in_its_folder_unless_somebody_took_it(tmp_path):
    if find_mosquitto() is None:
        require_program("mosquitto")
    with running_broker(tmp_path / "broker", tmp_path / "log") as running:
        first = running.port
    with running_broker(tmp_path / "broker", tmp_path / "log") as running:
        assert running.port == first
    with socket.create_server(("127.0.0.1", first)), running_broker(tmp_path / "broker", tmp_path / "log") as running:
        assert running.port != first


@pytest.mark.parametrize("name", ["mosquitto", "amqtt"])
def test_a_broker_takes_the_port_that_it_is_given_or_is_refused_with_the_option(name, taken, tmp_path, monkeypatch):
    if name == "amqtt":
        monkeypatch.setattr(broker, "find_mosquitto", lambda: None)
    elif find_mosquitto() is None:
        require_program("mosquitto")
    wanted = free_port()
    with running_broker(tmp_path / "broker", tmp_path / "log", wanted) as running:
        assert running.port == wanted
    look, looks = broker.check_port, []

    def late(*given):
        """Free at the first look, taken when the broker listens."""
        looks.append(given)
        if len(looks) > 1:
            look(*given)

    monkeypatch.setattr(broker, "check_port", late)
    with (
        pytest.raises(ConfigurationError, match=f"port {taken} .*another --mqtt-port"),
        running_broker(tmp_path / "broker", tmp_path / "log", taken),
    ):
        pytest.fail("it listens on a port that somebody else has")
