"""What may fail in a cluster, by ending real processes and cutting real networks, as often as CLUSTER_ROUNDS says.

Each time: the run says so in report and exit code, no device plays twice, nobody goes on sending for longer than the
lease, and what is there is judged. The witness is nginx in front of the service.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simulator.exit_codes import ExitCode
from tests.cluster_network import RemoteMachine, can_make_networks, remote_machine
from tests.cluster_running import RunningCluster, running_cluster
from tests.cluster_runs import DEVICES, LEASE_S, Program, folders_cleared, hold, nothing_left, worker_processes
from tests.cluster_witness import Seen, Witness, witness

ROUNDS = int(os.environ.get("CLUSTER_ROUNDS", "1"))
OTHER_CLOCK = """
import pathlib, time
real, offset = time.time, pathlib.Path(__file__).with_name("offset")
time.time = lambda: real() + float(offset.read_text())
"""
"""The wall clock of every Python of a machine, off by what a file says."""
UNDER_WAY_S = 2.0
"""What was on its way may arrive so much later."""

in_networks = pytest.mark.skipif(not can_make_networks(), reason="needs root and ip")


@pytest.fixture(scope="session", autouse=True, params=range(ROUNDS))
def turn(request) -> int:
    """Which of the rounds; each has all faults."""
    return int(request.param)


@pytest.fixture
def seen(service) -> Iterator[Witness]:
    """The witness of a cluster whose nodes have the network of this machine."""
    with witness(service.base_url) as running:
        yield running


@pytest.fixture
def apart() -> Iterator[tuple[RunningCluster, RemoteMachine]]:
    """A cluster of this machine, which has the conductor, and one with a network of its own; two cores each."""
    with remote_machine(2) as machine, running_cluster(2, address=machine.here) as own:
        machine.join(own, 2)
        yield own, machine


@pytest.fixture
def start_apart(apart, service, start) -> Iterator[tuple[Callable[..., Program], Witness]]:
    """Start a run on them; the witness is between both and the service."""
    own, machine = apart
    with witness(service.base_url, machine.service_at) as running:
        url = f"http://{machine.service_at}:{running.port}"
        yield lambda name, **changes: start(name, own.address, base_url=url, **changes), running


def url_of(seen: Witness) -> str:
    return f"http://127.0.0.1:{seen.port}"


def last_of_each(seen: Witness) -> list[float]:
    """When each device sent its last reading."""
    return sorted(readings[-1].at_s for readings in seen.by_device().values())


def check_declared(record: dict[str, Any], folder: Path, workers: set[int]) -> str:
    """The loss of these workers stands in the record, what is there is judged, and there is a report; the reasons."""
    assert {gap["worker"] for gap in record["gaps"]} == workers
    assert not record["audit"]["complete"]
    readings = record["audit"]["readings"]
    assert readings is None if len(workers) == 4 else readings["lost"] == readings["doubled"] == 0 < readings["sent"]
    assert record["verdict"]["word"] == "inconclusive"
    assert (folder / "report.html").exists()
    return " ".join(gap["reason"] for gap in record["gaps"])


def between(readings: list[Seen], from_s: float, to_s: float) -> list[Seen]:
    return [each for each in readings if from_s < each.at_s < to_s]


def of_machine(seen: Witness, address: str) -> list[Seen]:
    return [each for each in seen.readings() if each.machine == address]


def test_a_worker_that_is_killed_is_a_declared_gap_and_the_others_go_on(cluster, start, seen):
    before = worker_processes()
    with nothing_left(within_s=10):
        program = start("worker", cluster.address, base_url=url_of(seen), phases=hold(10))
        program.wait_for_load()
        workers = worker_processes() - before
        assert len(workers) == 4
        assert not any("_raylet" in Path(f"/proc/{pid}/maps").read_text() for pid in workers), "Ray is in a worker"
        os.kill(min(workers), signal.SIGKILL)
        killed_s = time.time()
        record = program.ended_with(ExitCode.INCONCLUSIVE)
    (gap,) = record["gaps"]
    assert "signal 9" in check_declared(record, program.folder, {gap["worker"]})
    last = last_of_each(seen)
    assert last[DEVICES // 4 - 1] < killed_s + UNDER_WAY_S < last[DEVICES // 4]
    seen.check_each_plays_once()


def test_a_node_whose_processes_are_killed_takes_its_workers_with_it_and_the_others_go_on(start, seen):
    with running_cluster(2) as own, nothing_left(within_s=30):
        node = own.add_node(2)
        program = start("node", own.address, base_url=url_of(seen), phases=hold(20))
        program.wait_for_load()
        own.kill_node(node)
        killed_s = time.time()
        record = program.ended_with(ExitCode.INCONCLUSIVE)
    lost = {gap["worker"] for gap in record["gaps"]}
    assert len(lost) == 2
    check_declared(record, program.folder, lost)
    last = last_of_each(seen)
    assert last[DEVICES // 2 - 1] < killed_s + LEASE_S + UNDER_WAY_S
    assert last[DEVICES // 2] > killed_s + 5
    seen.check_each_plays_once()


@in_networks
def test_a_machine_that_loses_its_power_is_lost_without_a_word_and_the_run_goes_on(apart, start_apart):
    (_, machine), (start, seen) = apart, start_apart
    with nothing_left(within_s=30), folders_cleared():
        program = start("power", phases=hold(30))
        program.wait_for_load()
        machine.power_off()
        off_s = time.time()
        record = program.ended_with(ExitCode.INCONCLUSIVE)
    check_declared(record, program.folder, {gap["worker"] for gap in record["gaps"]})
    assert len({gap["worker"] for gap in record["gaps"]}) == 2
    assert max(each.at_s for each in of_machine(seen, machine.seen_as)) < off_s + UNDER_WAY_S
    assert max(each.at_s for each in of_machine(seen, machine.service_at)) > off_s + LEASE_S
    seen.check_each_plays_once()


@in_networks
def test_a_network_that_is_cut_for_five_seconds_costs_nothing(apart, start_apart):
    (_, machine), (start, seen) = apart, start_apart
    with nothing_left(within_s=10):
        program = start("short", phases=hold(20))
        program.wait_for_load()
        machine.to_cluster.is_cut = True
        cut_s = time.time()
        time.sleep(5)
        machine.to_cluster.is_cut = False
        program.ended_whole()
    meanwhile = between(of_machine(seen, machine.seen_as), cut_s, cut_s + 5)
    assert len(meanwhile) > 2 * DEVICES / 2, "the load went on"
    seen.check_each_plays_once()


@in_networks
def test_a_machine_that_is_cut_off_for_a_minute_is_lost_and_sends_no_longer_than_its_lease(apart, start_apart):
    (_, machine), (start, seen) = apart, start_apart
    with nothing_left(within_s=30):
        program = start("long", phases=hold(80))
        program.wait_for_load()
        machine.to_cluster.is_cut = True
        cut_s = time.time()
        time.sleep(60)
        machine.to_cluster.is_cut = False
        record = program.ended_with(ExitCode.INCONCLUSIVE)
    lost = {gap["worker"] for gap in record["gaps"]}
    assert len(lost) == 2
    check_declared(record, program.folder, lost)
    theirs = of_machine(seen, machine.seen_as)
    assert cut_s + 5 < max(each.at_s for each in theirs) < cut_s + LEASE_S + UNDER_WAY_S
    assert max(each.at_s for each in of_machine(seen, machine.service_at)) > cut_s + 60
    seen.check_each_plays_once()


def test_a_run_that_is_killed_leaves_no_worker_that_sends_longer_than_its_lease(cluster, start, seen):
    with nothing_left(within_s=LEASE_S + 5):
        program = start("orphan", cluster.address, base_url=url_of(seen), phases=hold(600))
        program.wait_for_load()
        program.process.kill()
        killed_s = time.time()
        program.ended()
    assert max(each.at_s for each in seen.readings()) < killed_s + LEASE_S + UNDER_WAY_S
    seen.check_each_plays_once()


def test_workers_that_nobody_asks_any_more_end_by_themselves_and_the_run_says_so(cluster, start, seen):
    before = worker_processes()
    with nothing_left(within_s=10):
        program = start("frozen", cluster.address, base_url=url_of(seen), phases=hold(30))
        program.wait_for_load()
        program.process.send_signal(signal.SIGSTOP)  # what the crews see of a conductor that is cut off
        frozen_s = time.time()
        while worker_processes() - before:
            assert time.time() - frozen_s < LEASE_S + 5
            time.sleep(0.1)
        program.process.send_signal(signal.SIGCONT)
        record = program.ended_with(ExitCode.INCONCLUSIVE)
    check_declared(record, program.folder, {0, 1, 2, 3})
    assert max(each.at_s for each in seen.readings()) < frozen_s + LEASE_S + UNDER_WAY_S
    seen.check_each_plays_once()


def test_a_head_that_dies_ends_the_machines_of_its_cluster_and_the_report_is_made_from_what_is_there(
    start, seen, monkeypatch
):
    # Ray's own time is a minute; it is the same way at ten seconds.
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "10")
    with running_cluster(2, 2) as own, nothing_left(within_s=30):
        monkeypatch.delenv("RAY_gcs_rpc_server_reconnect_timeout_s")
        program = start("head", own.address, base_url=url_of(seen), phases=hold(60))
        program.wait_for_load()
        own.kill_head_process()
        killed_s = time.time()
        record = program.ended_with(ExitCode.INCONCLUSIVE)
    check_declared(record, program.folder, {0, 1, 2, 3})
    assert max(each.at_s for each in seen.readings()) < killed_s + 10 + LEASE_S + UNDER_WAY_S
    seen.check_each_plays_once()


@contextlib.contextmanager
def held_back(pids: set[int]) -> Iterator[None]:
    """Processes get a fifth of the time."""
    is_over = threading.Event()

    def hold_back() -> None:
        while not is_over.wait(0.1):
            for number, pause_s in ((signal.SIGSTOP, 0.4), (signal.SIGCONT, 0.0)):
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
                time.sleep(pause_s)

    thread = threading.Thread(target=hold_back)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@in_networks
def test_a_machine_that_is_slower_is_no_loss_and_the_run_is_not_judged(apart, start_apart):
    (_, machine), (start, seen) = apart, start_apart
    with nothing_left(within_s=10):
        program = start("slow", phases=hold(15))
        program.wait_for_load()
        with held_back(set(machine.pids) & worker_processes()):
            record = program.ended_with(ExitCode.INCONCLUSIVE)
    assert record["gaps"] == []
    assert record["audit"]["complete"]
    assert record["audit"]["readings"]["lost"] == record["audit"]["readings"]["doubled"] == 0
    assert record["reasons"]["saturated"]
    seen.check_each_plays_once()


@in_networks
@pytest.mark.parametrize(("jump", "said"), [("130", "jumped ahead by 130 s"), ("-130", "jumped back by 130 s")])
def test_a_clock_that_is_set_in_the_middle_of_a_run_is_declared(service, start, tmp_path, jump, said):
    (tmp_path / "sitecustomize.py").write_text(OTHER_CLOCK)
    offset = tmp_path / "offset"
    offset.write_text("0")
    with (
        remote_machine(3) as machine,
        running_cluster(2, address=machine.here) as own,
        witness(service.base_url, machine.service_at) as seen,
        nothing_left(within_s=10),
    ):
        machine.join(own, 2, {"PYTHONPATH": str(tmp_path)})
        program = start("clock", own.address, base_url=f"http://{machine.service_at}:{seen.port}", phases=hold(10))
        program.wait_for_load()
        offset.write_text(jump)
        record = program.ended_with(ExitCode.INCONCLUSIVE)
        seen.check_each_plays_once()
    assert record["gaps"] == []
    assert record["audit"]["readings"]["lost"] == record["audit"]["readings"]["doubled"] == 0
    sentences = [sentence for sentence in record["verdict"]["sentences"] if said in sentence]
    assert len(sentences) == 2, record["verdict"]
    assert len({sentence.partition(":")[0] for sentence in sentences} & {f"worker {n}" for n in range(4)}) == 2
