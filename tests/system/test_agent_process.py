"""The real ``device-agent`` process against the real local service."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.support.ports import free_port
from tests.support.processes import run_module
from tests.system.agent_bench import PROMPT_S, SECRET_KEY, program, wait_until


def test_a_command_goes_to_its_handler_and_its_result_comes_back(bench):
    agent = bench.start()
    ids = {
        "ping": bench.send(command="ping", echo="hello"),
        "unknown": bench.send(command="open_door"),
        "invalid": bench.send(command="ping", volume=11),
    }
    ping = bench.wait_for(ids["ping"])
    assert ping.status == "succeeded"
    assert ping.result["echo"] == "hello"
    for name, code in (("unknown", "unknown_command"), ("invalid", "invalid_payload")):
        record = bench.wait_for(ids[name])
        assert record.status == "rejected"
        assert code in (record.status_reason or record.error or "")
    code, took_s = agent.terminate()
    assert code == 0
    assert took_s < PROMPT_S
    assert SECRET_KEY not in "\n".join(agent.lines)


def test_readings_of_this_machine_arrive_and_a_set_interval_survives_a_restart(bench):
    bench.write_config(
        str(bench.client.base_url),
        more="sensors:\n  - {name: board, type: system, interval_s: 3600}\n",
    )
    agent = bench.start()
    readings = wait_until(lambda: list(bench.client.sensor_data(bench.device_id)))
    assert readings[0].sensor_data["uptime_s"] > 0
    bench.wait_for(bench.send(command="set_interval", name="board", interval_s=0.3), "succeeded")
    assert agent.terminate()[0] == 0
    before = len(list(bench.client.sensor_data(bench.device_id)))
    bench.start()
    wait_until(lambda: len(list(bench.client.sensor_data(bench.device_id))) >= before + 3)


def test_sigterm_ends_a_held_poll_and_a_running_handler_long_before_they_would_end(bench):
    slow = program(bench.folder / "slow", "exec sleep 60")
    bench.write_config(
        str(bench.client.base_url),
        more=f"executables:\n  slow: {{argv: ['{slow}'], timeout_s: 120, contract: idempotent}}\n",
    )
    agent = bench.start()
    bench.send(command="slow")
    agent.wait_for("handler=slow state=started")
    code, took_s = agent.terminate()
    assert code == 0
    assert took_s < PROMPT_S


def test_a_command_that_a_kill_interrupts_is_concluded_by_its_contract(bench):
    once = program(bench.folder / "once", f"echo run >> '{bench.folder}/once.log'; exec sleep 60")
    again = program(
        bench.folder / "again",
        f"echo run >> '{bench.folder}/again.log'; [ $(wc -l < '{bench.folder}/again.log') -gt 1 ] || exec sleep 60",
    )
    bench.write_config(
        str(bench.client.base_url),
        more=(
            "executables:\n"
            f"  once: {{argv: ['{once}'], timeout_s: 120}}\n"
            f"  again: {{argv: ['{again}'], timeout_s: 120, contract: idempotent}}\n"
        ),
    )
    agent = bench.start()
    ids = [bench.send(command="once"), bench.send(command="again")]
    wait_until(lambda: (bench.folder / "once.log").exists() and (bench.folder / "again.log").exists())
    agent.kill()
    bench.start()
    interrupted = bench.wait_for(ids[0])
    assert interrupted.status == "failed"
    assert "indeterminate" in (interrupted.status_reason or interrupted.error or "")
    assert bench.wait_for(ids[1]).status == "succeeded"
    assert (bench.folder / "once.log").read_text() == "run\n"
    assert (bench.folder / "again.log").read_text() == "run\nrun\n"


def test_an_agent_that_a_watchdog_ends_says_where_its_threads_were(bench):
    agent = bench.start()
    os.kill(agent.pid, signal.SIGABRT)  # as systemd does when WatchdogSec= is over
    assert agent.wait() == -signal.SIGABRT
    said = "\n".join(agent.lines)
    assert "Fatal Python error: Aborted" in said
    assert said.count("Thread 0x") >= 3


def test_restart_agent_replaces_the_process_and_is_reported_once(bench):
    agent = bench.start()
    command_id = bench.send(command="restart_agent", reason="a test")
    record = bench.wait_for(command_id)
    assert record.status == "succeeded"
    assert record.result["restarted"] is True
    assert record.result["identity"]["process_id"] == agent.pid
    agent.wait_for("state=reported")
    assert len([line for line in agent.lines if "agent=ready" in line]) == 2
    assert len([line for line in agent.lines if "state=reported" in line]) == 1


@contextmanager
def service_manager(address: Path) -> Iterator[list[bytes]]:
    """What it is told, word by word. It always listens: where ten words wait unread, the next ones are lost."""
    told: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))

        def listen() -> None:
            while word := manager.recv(4096):
                told.extend(word.split(b"\n"))

        thread = threading.Thread(target=listen, name="service-manager")
        thread.start()
        try:
            yield told
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
                end.sendto(b"", str(address))
            thread.join()


def test_under_a_service_manager_restart_agent_ends_with_its_own_code(bench, tmp_path):
    with service_manager(tmp_path / "notify") as told:
        agent = bench.start(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="2000000")
        wait_until(lambda: b"WATCHDOG=1" in told)
        assert b"READY=1" in told
        bench.send(command="restart_agent")
        assert agent.wait() == 75
        wait_until(lambda: b"STOPPING=1" in told)


def test_only_one_agent_uses_a_state_directory(bench):
    bench.start()
    second = run_module("agent.cli", "run", "--config", str(bench.config))
    assert second.returncode == 2
    assert "another process" in second.stderr
    assert second.stderr.count("\n") <= 3
    assert "Traceback" not in second.stderr


def test_with_the_service_down_the_agent_waits_and_goes_on_when_it_is_there(bench, service):
    nobody = f"http://127.0.0.1:{free_port()}"
    bench.write_config(nobody, more="sensors:\n  - {name: board, type: system, interval_s: 0.5}\n")
    agent = bench.start()
    agent.wait_for("commands=unreachable")
    status = run_module("agent.cli", "status", "--json", "--config", str(bench.config))
    assert json.loads(status.stdout)["state"] == "running"
    wait_until(
        lambda: (
            json.loads(run_module("agent.cli", "status", "--json", "--config", str(bench.config)).stdout)["store"][
                "outbox"
            ]["rows"]
            >= 2
        )
    )
    agent.kill()
    died = json.loads(run_module("agent.cli", "status", "--json", "--config", str(bench.config)).stdout)
    assert died["state"] == "died"
    rows = died["store"]["outbox"]["rows"]
    assert rows >= 2
    assert len([line for line in agent.lines if "unreachable" in line]) <= 3
    bench.write_config(service.base_url)
    bench.start()
    wait_until(lambda: len(list(bench.client.sensor_data(bench.device_id))) >= rows)


def test_wrong_keys_are_one_clear_line(bench, service):
    bench.write_config(service.base_url, secret_key="msk_wrong")
    agent = bench.start()
    line = agent.wait_for("commands=unauthorized")
    assert "file that auth names" in line
    assert "msk_wrong" not in "\n".join(agent.lines)
    assert agent.terminate()[0] == 0


def test_under_another_device_id_the_store_is_renamed_and_a_new_one_begun(bench):
    sensors = "sensors: [{name: s, type: simulated, interval_s: 0.2}]\n"
    url = str(bench.client.base_url)
    bench.write_config("http://127.0.0.1:9", more=sensors)
    agent = bench.start()
    threading.Event().wait(2)
    assert agent.terminate()[0] == 0
    former, bench.device_id = bench.device_id, "door-2"
    bench.write_config(url)
    agent = bench.start()
    agent.wait_for(f"device=changed from {former} to door-2: what waited for the former one is in ")
    assert agent.terminate()[0] == 0
    (kept,) = bench.state_dir.glob("agent.db.*.old")
    with closing(sqlite3.connect(kept)) as store:
        assert store.execute("SELECT count(body) FROM reading").fetchone()[0] > 3
