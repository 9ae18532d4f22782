"""What whoever runs an agent sees of it: the doctor beside it, its figures, its log, and no secret in any of them."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families as parse

from tests.support.processes import run_module
from tests.system.agent_bench import API_KEY, SECRET_KEY, wait_until


def doctor(config: Path, *options: str) -> tuple[int, dict[str, dict[str, str]], str]:
    """Exit code, the checks by id, and all that it wrote."""
    found = run_module("agent.cli", "doctor", "--config", config, "--json", *options)
    return found.returncode, {line["id"]: line for line in json.loads(found.stdout)}, found.stdout + found.stderr


def figures(address: str) -> dict[tuple[str, ...], float]:
    text = httpx.get(address, timeout=60).text
    assert SECRET_KEY not in text
    assert API_KEY not in text
    return {(s.name, *s.labels.values()): s.value for family in parse(text) for s in family.samples}


def test_the_doctor_looks_at_a_running_agent_and_disturbs_it_not(bench, service):
    more = "sensors: [{name: sim, type: simulated, interval_s: 0.5}]\n"
    bench.write_config(service.base_url, more=more)
    agent = bench.start()
    code, found, told = doctor(bench.config)
    assert code == 0, told
    wrong = {name: line for name, line in found.items() if line["verdict"] not in {"ok", "skipped"}}
    # What the machine of this test is like is not the agent's: its memory, its time service, its unit.
    assert not set(wrong) - {"clock", "unit", "disk"}, wrong
    for check in ("agent", "database", "sensors", "service"):
        assert found[check]["verdict"] == "ok", found[check]
    assert "as the running agent reports" in found["sensors"]["seen"]
    assert SECRET_KEY not in told
    assert API_KEY not in told
    assert bench.wait_for(bench.send(command="ping")).status == "succeeded"
    assert not [line for line in agent.lines if "level=error" in line]
    assert agent.terminate()[0] == 0
    _, found, _ = doctor(bench.config, "--offline")
    assert found["agent"]["verdict"] == "warning"
    assert found["connection"]["verdict"] == "skipped"


def test_the_figures_of_a_running_agent(bench, service):
    more = "sensors: [{name: sim, type: simulated, interval_s: 0.3}]\nmetrics: {port: 0}\n"
    bench.write_config(service.base_url, more=more)
    agent = bench.start()
    address = agent.wait_for("metrics=http").rpartition("metrics=")[2]
    assert bench.wait_for(bench.send(command="ping")).status == "succeeded"
    assert bench.wait_for(bench.send(command="nobody has this")).status == "rejected"
    found = wait_until(
        lambda: each if (each := figures(address)).get(("device_agent_readings_delivered_total",), 0) > 0 else None
    )
    assert found["device_agent_commands_total", "ping", "succeeded"] == 1
    assert found["device_agent_commands_total", "other", "rejected"] == 1
    assert found["device_agent_command_duration_seconds_count",] >= 1
    assert found["device_agent_requests_total", "readings", "ok"] > 0
    assert found["device_agent_part_ok", "commands"] == 1
    assert found["device_agent_starts_total",] == 1
    assert found["device_agent_process_resident_memory_bytes",] > 0
    assert abs(found["device_agent_service_clock_offset_seconds",]) < 5
    assert agent.terminate()[0] == 0


def test_a_port_that_is_taken_is_a_fault_of_the_configuration(bench, service):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bench.write_config(service.base_url, more=f"metrics: {{port: {taken.getsockname()[1]}}}\n")
        agent = bench.start(until="metrics.port")
        assert agent.wait() == 2
        assert not [line for line in agent.lines if "Traceback" in line]


def test_the_log_of_a_whole_life_under_journald_and_no_secret_in_it(bench, service):
    bench.write_config(service.base_url, more="logging: {level: debug}\n")
    agent = bench.start(until="agent=ready", JOURNAL_STREAM="8:12345")
    sent = bench.send(command="ping")
    assert bench.wait_for(sent).status == "succeeded"
    agent.wait_for("state=reported")
    assert agent.terminate()[0] == 0
    assert all(re.match("<[3467]>", line) for line in agent.lines)
    steps = [step for line in agent.lines for step in re.findall(rf"command={sent} .*state=(\w+)", line)]
    assert steps == ["received", "started", "succeeded", "reported"]
    whole = "\n".join(agent.lines)
    assert SECRET_KEY not in whole
    assert API_KEY not in whole
