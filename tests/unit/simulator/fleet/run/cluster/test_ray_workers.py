"""The workers of several machines, with a stand-in for Ray: what goes wrong between them and this machine."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.run.cluster import ray_workers as module
from simulator.fleet.run.cluster.placement import Node, Placement
from simulator.fleet.run.cluster.ray_workers import RayWorkers

LEDGER = b"a ledger of a worker " * 1000
PIECE_BYTES = 7000


class RayError(Exception):
    pass


class ActorUnavailableError(RayError):
    pass


class GetTimeoutError(RayError):
    pass


@dataclass
class Call:
    """An answer to come: the value, or what goes wrong."""

    outcome: Any

    def get(self) -> Any:
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


@dataclass
class Crew:
    """A machine's actor.

    Attributes:
        started: the answer to ``start``.
        failures: those of its first answers about files, one each.
    """

    started: Any = None
    failures: list[BaseException] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        answer = {"start": lambda *_: self.started, "close": lambda: None, "size_of": self._size_of, "read": self._read}
        return SimpleNamespace(remote=lambda *given: Call(answer[name](*given)))

    def _size_of(self, _path: str) -> Any:
        return len(LEDGER), hashlib.sha256(LEDGER).hexdigest()

    def _read(self, _path: str, offset: int) -> Any:
        if offset and self.failures:
            return self.failures.pop(0)
        return LEDGER[offset : offset + PIECE_BYTES]


@pytest.fixture(autouse=True)
def ray(monkeypatch) -> None:
    """A stand-in for the functions of Ray that RayWorkers calls."""
    stand_in = ModuleType("ray")
    errors = {each.__name__: each for each in (RayError, ActorUnavailableError, GetTimeoutError)}
    stand_in.__dict__.update(
        exceptions=SimpleNamespace(**errors),
        put=lambda value: value,
        get=lambda call, timeout: call.get(),
        wait=lambda calls, num_returns, timeout: (calls, []),
        kill=lambda actor, no_restart: None,
    )
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    monkeypatch.setattr(module, "silent_head", lambda: None)


def workers_on(monkeypatch, *crews: Crew) -> RayWorkers:
    """Workers on machines of one address: two of Ray's nodes may be on one machine."""
    left = iter(crews)
    monkeypatch.setattr(module, "_make_actor", lambda *_: next(left))
    nodes = [Node(f"id-{at}", "10.0.0.1", 1, is_here=False) for at in range(len(crews))]
    return RayWorkers(lambda *_: None, [Placement(node, at, 1) for at, node in enumerate(nodes)])


@pytest.mark.parametrize("failing", [0, 1])
def test_each_of_two_nodes_of_one_machine_has_to_start_its_workers(failing, monkeypatch):
    crews = [Crew(RayError("no room for its files") if at == failing else None) for at in range(2)]
    with (
        workers_on(monkeypatch, *crews) as workers,
        pytest.raises(ConfigurationError, match=r"10.0.0.1: no worker could be started: RayError: no room"),
    ):
        workers.start([None, None])


def collect(monkeypatch, path: Path, *failures: BaseException) -> tuple[str, ...]:
    job = SimpleNamespace(ledger=SimpleNamespace(path=path))
    with workers_on(monkeypatch, Crew(failures=list(failures))) as workers:
        monkeypatch.setattr(module, "pack", lambda jobs: jobs)
        workers.start([job])
        return workers.collect(lambda _done, _whole: None)


def test_a_ledger_comes_whole_although_the_connection_is_cut_meanwhile(monkeypatch, tmp_path):
    path = tmp_path / "worker-000.ledger"
    assert collect(monkeypatch, path, ActorUnavailableError("cut"), ActorUnavailableError("cut")) == ()
    assert path.read_bytes() == LEDGER
    assert list(tmp_path.iterdir()) == [path]


def test_a_machine_that_is_gone_leaves_no_ledger_and_the_reason(monkeypatch, tmp_path):
    (missing,) = collect(monkeypatch, tmp_path / "worker-000.ledger", RayError("its machine died"))
    assert missing == ("the ledger of worker 0 on 10.0.0.1 could not be fetched: RayError: its machine died")
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_without_a_head_is_not_asked_again_and_a_machine_that_is_gone_not_for_each_of_its_ledgers(
    monkeypatch, tmp_path
):
    crew = Crew(failures=[ActorUnavailableError("cut")])
    monkeypatch.setattr(module, "silent_head", lambda: "10.0.0.1:6379")
    monkeypatch.setattr(module, "_make_actor", lambda *_: crew)
    monkeypatch.setattr(module, "pack", lambda jobs: jobs)
    paths = [tmp_path / f"worker-{number:03d}.ledger" for number in range(3)]
    node = Node("id", "10.0.0.1", 3, is_here=False)
    with RayWorkers(lambda *_: None, [Placement(node, 0, 3)]) as workers:
        workers.start([SimpleNamespace(ledger=SimpleNamespace(path=path)) for path in paths])
        missing = workers.collect(lambda _done, _whole: None)
    without = "Ray's head at 10.0.0.1:6379 does not answer, and without it Ray ends its processes on every machine"
    assert missing == tuple(
        f"the ledger of worker {number} on 10.0.0.1 could not be fetched: {without}" for number in range(3)
    )
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_leaves_no_half_ledger_that_an_audit_would_take_for_a_whole_one(monkeypatch, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        collect(monkeypatch, tmp_path / "worker-000.ledger", KeyboardInterrupt())
    assert list(tmp_path.iterdir()) == []
