"""Errors of Ray's in words that say what is known of a machine; the classes are stand-ins with Ray's names."""

from __future__ import annotations

import socket
import sys
from types import SimpleNamespace

import pytest

from simulator.fleet.run.cluster.connection import silent_head
from simulator.fleet.run.cluster.ray_errors import reason

DIED = "The actor died unexpectedly before finishing this task.\n\tclass_name: NodeCrew"


def of_ray(name: str, text: str, **attributes: object) -> Exception:
    made = type(name, (Exception,), attributes)(text)
    assert isinstance(made, Exception)
    return made


@pytest.mark.parametrize("name", ["ActorDiedError", "WorkerCrashedError"])
def test_a_process_that_ended_is_named_with_where_its_logs_are(name):
    assert reason(of_ray(name, DIED), lambda: None) == (
        "Ray's process there ended (its logs there: /tmp/ray/session_latest/logs)"
    )


def test_a_machine_that_is_cut_off_does_not_answer():
    error = of_ray("ActorUnavailableError", "The actor 12ab is unavailable: RpcError: RPC error")
    assert reason(error, lambda: None) == "Ray's process there does not answer"


@pytest.mark.parametrize("name", ["ActorDiedError", "ActorUnavailableError", "GetTimeoutError"])
def test_without_a_head_the_head_is_named_as_the_cause(name):
    assert reason(of_ray(name, DIED), lambda: "10.0.0.1:6379") == (
        "Ray's head at 10.0.0.1:6379 does not answer, and without it Ray ends its processes on every machine"
    )


def test_an_error_of_this_program_on_the_machine_and_one_that_is_unknown_stay_what_they_are():
    full = of_ray("RayTaskError", "a traceback\nof many lines", cause=OSError(28, "No space left on device"))
    assert "No space left on device" in reason(full, lambda: "10.0.0.1:6379")
    born_dead = of_ray("ActorDiedError", "an error raised in its creation task\nmore", actor_init_failed=True)
    assert reason(born_dead, lambda: None) == "ActorDiedError: an error raised in its creation task"
    assert reason(of_ray("OutOfMemoryError", ""), lambda: None) == "OutOfMemoryError"


def test_a_head_is_silent_only_when_nobody_listens_there(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        context = SimpleNamespace(gcs_address=address)
        monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get_runtime_context=lambda: context))
        assert silent_head() is None
    assert silent_head() == address
