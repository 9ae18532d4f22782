"""What is wrong with a cluster, in one clear line; nothing here needs Ray."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.engine.preflight import Demand
from simulator.fleet.plan.shares import deal
from simulator.fleet.run.cluster import connection
from simulator.fleet.run.cluster.comparison import Seen, differences, look
from simulator.fleet.run.cluster.connection import connected
from simulator.fleet.run.cluster.place import share_of
from simulator.fleet.run.cluster.placement import Node, Placement

NOW_S = 1_767_225_600.0
NODE = Node("id", "10.0.0.2", 4, is_here=False)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(connection, "find_spec", lambda _name: None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[cluster\]'"), connected("auto"):
        pass


@pytest.mark.parametrize("address", ["", "somewhere", "http://10.0.0.1:6379", "ray://10.0.0.1:10001", "10.0.0.1:port"])
def test_an_address_that_is_none_is_refused_with_an_example(address, monkeypatch):
    monkeypatch.setattr(connection, "find_spec", lambda _name: True)
    with (
        pytest.raises(ConfigurationError, match=r"write HOST:PORT .* such as 10.0.0.1:6379, or auto"),
        connected(address),
    ):
        pass


def test_an_address_where_nobody_listens_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(connection, "find_spec", lambda _name: True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with (
            pytest.raises(ConfigurationError, match=f"nobody answers at {address} .*ray start --head"),
            connected(address),
        ):
            pass


@contextlib.contextmanager
def server_that_says(words: bytes) -> Iterator[str]:
    """A server of something else; its address. It says this to everybody, whatever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as ends:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    line = ends.enter_context(listener.accept()[0])
                    line.sendall(words)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("words", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"220 mail\r\n"])
def test_a_server_that_is_no_head_of_a_cluster_is_refused_before_ray_tries_it_for_minutes(words, monkeypatch):
    monkeypatch.setattr(connection, "find_spec", lambda _name: True)
    monkeypatch.setattr(connection, "_ANSWER_S", 0.5)
    with (
        server_that_says(words) as address,
        pytest.raises(ConfigurationError, match=f"what answers at {address} is no head of a Ray cluster: start 'ray"),
        connected(address),
    ):
        pass


@pytest.mark.parametrize(("resource", "what"), [("CPU", "is Ray's own"), ("", "is no name")])
def test_a_resource_that_nobody_can_give_a_machine_is_refused(resource, what, monkeypatch):
    monkeypatch.setattr(connection, "find_spec", lambda _name: True)
    sentence = f"--cluster-resource {resource!r} {what}: name one that 'ray start --resources' sets"
    with pytest.raises(ConfigurationError, match=sentence), connected("auto", resource):
        pass


@pytest.fixture
def membership(monkeypatch):
    """Whether a cluster with these machines is refused, where these processes of Ray's run; the reason, or None."""

    def check(of_cluster: list[bytes] | Exception, here: set[str]) -> str | None:
        def get_all_node_info(timeout: float) -> dict[bytes, object]:
            assert timeout <= 5
            if isinstance(of_cluster, Exception):
                raise of_cluster
            return dict.fromkeys(of_cluster)

        client = SimpleNamespace(get_all_node_info=get_all_node_info)
        for name, module in {
            "ray": SimpleNamespace(),
            "ray._private": SimpleNamespace(),
            "ray._private.services": SimpleNamespace(find_node_ids=lambda: here),
            "ray._raylet": SimpleNamespace(GcsClient=lambda address: client),
        }.items():
            monkeypatch.setitem(sys.modules, name, module)
        try:
            connection._check_membership("10.0.0.1:6379")
        except ConfigurationError as error:
            return error.faults[0]
        return None

    return check


def test_a_cluster_that_this_machine_is_none_of_is_refused_before_ray_waits_for_a_minute(membership):
    ours, theirs = b"\x0a", b"\x0b"
    assert membership([ours, theirs], {"0a"}) is None
    assert membership([theirs], {"0a"}) == (
        "this machine is not part of the one at 10.0.0.1:6379: 'ray start --address=HOST:PORT' makes this machine one "
        "of a cluster, 'ray start --head' makes a cluster of it (none of the cluster's processes runs here)"
    )
    refused = membership([ours], set())
    assert refused is not None
    assert refused.endswith("(no process of Ray's runs here)")
    assert membership(RuntimeError("Deadline Exceeded"), set()) is None, "Ray says what is wrong when it connects"
    without_token = type("AuthenticationError", (Exception,), {})("RPC error: InvalidAuthToken")
    assert membership(without_token, {"0a"}) == (
        "10.0.0.1:6379 wants the token of its cluster: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as where it was "
        "started"
    )


def test_a_machine_with_the_same_program_is_taken():
    assert differences([NODE], [replace(look(), wall_s=NOW_S)], (NOW_S, NOW_S + 1)) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"python": "3.99.1"}, "10.0.0.2: has Python 3.99.1, and this machine has "),
        ({"distribution": ""}, "10.0.0.2: has no device-agent: there pip install '.[cluster]' in a clone "),
        ({"distribution": "0.0.9"}, "10.0.0.2: has device-agent 0.0.9, and this machine has "),
        ({"sources": "0" * 64}, "10.0.0.2: has another build of device-agent "),
        ({"wall_s": NOW_S + 126}, "10.0.0.2: its clock is 125 s ahead of this machine's"),
        ({"wall_s": NOW_S - 300}, "10.0.0.2: its clock is 300 s behind this machine's"),
    ],
)
def test_a_machine_with_something_else_is_named_with_both_versions(change, sentence):
    (fault,) = differences([NODE], [replace(look(), **{"wall_s": NOW_S, **change})], (NOW_S, NOW_S + 1))
    assert fault.startswith(sentence)


def test_what_is_looked_at_tells_two_programs_from_each_other():
    here: Seen = look()
    assert len(here.sources) == 64
    assert here.distribution


def test_a_machines_share_is_that_of_its_workers():
    whole = Demand(devices=10, device_bytes=100, sockets=40, workers=4, source_addresses=2, tls=True)
    share = share_of(whole, Placement(NODE, first=1, workers=2), deal(10, 4), target_is_here=True)
    assert (share.devices, share.sockets, share.workers, share.target_is_here) == (5, 20, 2, True)
    assert (share.device_bytes, share.source_addresses, share.tls) == (100, 2, True)
