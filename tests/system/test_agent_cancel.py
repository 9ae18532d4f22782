"""The real ``device-agent`` process: cancel, and a verify hook after ``kill -9``."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.api.test_command_source_port import Answer, ScriptedServer
from tests.support.processes import is_gone
from tests.system.agent_bench import SOON_S, plugin_folder, program, wait_until

PLUGIN = """
import os, sys, time
from pathlib import Path
from agent import CommandContext, Contract, Handler, HandlerPayload, Verified


class Pump(Handler):
    name = "pump"
    contract = Contract.ONCE
    timeout_s = 120.0

    class Payload(HandlerPayload):
        folder: str

    def handle(self, payload, context):
        folder = Path(payload.folder)
        with (folder / "effects").open("a") as effects:
            effects.write("pumped\\n")
        (folder / "pump.pid").write_text(str(os.getpid()))
        context.report_progress({"pumped": 1})
        while True:
            time.sleep(60)

    def verify(self, payload, context):
        if (Path(payload.folder) / "effects").exists():
            return Verified.succeeded({"pumped": len((Path(payload.folder) / "effects").read_text().split())})
        return Verified.not_done()
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory) -> str:
    """A folder with an installed package, for ``PYTHONPATH``."""
    points = "[agent.handlers]\npump = pump_plugin:Pump\n"
    return str(plugin_folder(tmp_path_factory.mktemp("plugin"), "pump_plugin", PLUGIN, points))


def process_id_in(path: Path) -> int:
    return int(wait_until(lambda: path.exists() and path.read_text().strip()))


def reason_of(record) -> str:
    return record.status_reason or record.error or ""


def test_a_running_executable_is_ended_by_a_command_and_one_that_waits_never_runs(bench):
    slow = program(bench.folder / "slow", f"echo $$ > '{bench.folder}/slow.pid'; sleep 600 & wait")
    bench.write_config(
        str(bench.client.base_url),
        more=f"executables:\n  slow: {{argv: ['{slow}'], timeout_s: 120}}\n",
    )
    bench.start()
    running = bench.send(command="slow")
    process_id = process_id_in(bench.folder / "slow.pid")
    waiting = bench.send(command="slow")
    wait_until(lambda: bench.commands()[waiting].status == "delivered")
    first = bench.wait_for(bench.send(command="cancel", command_id=waiting))
    assert first.result == {"command_id": waiting, "found": "waiting", "canceled": True}
    second = bench.wait_for(bench.send(command="cancel", command_id=running))
    assert second.result["found"] == "running"
    ended = bench.wait_for(running)
    assert ended.status == "failed"
    assert f"canceled: by command {second.id}, while it ran" in reason_of(ended)
    assert is_gone(process_id)
    refused = bench.wait_for(waiting)
    assert refused.status == "rejected"
    assert f"canceled: by command {first.id}, before it began" in reason_of(refused)
    late = bench.wait_for(bench.send(command="cancel", command_id=running))
    assert late.result == {"command_id": running, "found": "over", "canceled": False}


def test_after_kill_9_a_once_handler_is_asked_and_does_not_run_again(bench, plugin):
    agent = bench.start(PYTHONPATH=plugin)
    command_id = bench.send(command="pump", folder=str(bench.folder))
    process_id = process_id_in(bench.folder / "pump.pid")
    agent.kill()
    # Its process goes with the agent: no effect may come once the next one has looked at the world.
    wait_until(lambda: is_gone(process_id))
    bench.start(PYTHONPATH=plugin)
    record = bench.wait_for(command_id)
    assert record.status == "succeeded"
    assert record.result == {"pumped": 1}
    assert (bench.folder / "effects").read_text() == "pumped\n"


def test_after_kill_9_a_program_tells_how_a_once_command_ended(bench):
    expected = {
        0: ("succeeded", 1, ""),
        70: ("failed", 1, "stuck"),
        75: ("succeeded", 2, ""),
        3: ("failed", 1, "indet"),
    }
    more = "executables:\n"
    for code in expected:
        log, file = bench.folder / f"{code}.log", bench.folder / f"{code}.pid"
        text = f"echo run >> '{log}'; echo $$ > '{file}'; [ $(wc -l < '{log}') -gt 1 ] || exec sleep 600"
        valve = program(bench.folder / f"valve{code}", text)
        verify = program(bench.folder / f"verify{code}", f"echo 'the valve is stuck' >&2; exit {code}")
        more += f"  valve{code}: {{argv: ['{valve}'], verify: ['{verify}'], timeout_s: 120}}\n"
    bench.write_config(str(bench.client.base_url), more=more)
    agent = bench.start()
    ids = {code: bench.send(command=f"valve{code}") for code in expected}
    process_ids = [process_id_in(bench.folder / f"{code}.pid") for code in expected]
    agent.kill()
    for process_id in process_ids:
        os.kill(process_id, 9)  # the service manager would have done that
    bench.start()
    for code, (status, runs, reason) in expected.items():
        record = bench.wait_for(ids[code])
        assert record.status == status
        assert reason in reason_of(record)
        assert (bench.folder / f"{code}.log").read_text() == "run\n" * runs


def test_a_program_that_falls_silent_is_ended(bench):
    silent = program(bench.folder / "silent", "for i in 1 2 3; do echo $i >&2; sleep 0.5; done; exec sleep 600")
    bench.write_config(
        str(bench.client.base_url),
        more=f"executables:\n  silent: {{argv: ['{silent}'], timeout_s: 120, inactivity_timeout_s: 3}}\n",
    )
    bench.start()
    record = bench.wait_for(bench.send(command="silent"))
    assert record.status == "failed"
    assert reason_of(record).startswith("inactive: 'silent' gave no sign of life for 3 s; stopped: ")


def test_what_the_service_canceled_is_ended_and_its_409_is_not_repeated(bench):
    slow = program(bench.folder / "slow", f"echo $$ > '{bench.folder}/slow.pid'; exec sleep 600")
    canceled = threading.Event()
    record = {
        "id": "c1",
        "device_id": bench.device_id,
        "command_payload": {"command": "slow"},
        "status": "delivered",
        "created_at": "2026-01-01T00:00:00Z",
    }

    def script(method: str, path: str, _headers: dict[str, str]) -> Answer:
        if path.startswith("/.well-known"):
            return Answer(body={"extensions": ["command-results", "command-status"]})
        if method == "POST":
            return Answer(409, {"error": "command_final", "message": "it is canceled"})
        if "status=canceled" in path:
            return Answer(body={"data": [{**record, "status": "canceled"}], "next_cursor": None, "has_more": False})
        return Answer(body={"data": [] if canceled.is_set() else [record], "next_cursor": None, "has_more": False})

    server = ScriptedServer(script)
    try:
        bench.write_config(server.base_url, more=f"executables:\n  slow: {{argv: ['{slow}'], timeout_s: 120}}\n")
        agent = bench.start()
        process_id = process_id_in(bench.folder / "slow.pid")
        canceled.set()
        agent.wait_for("canceled: by the service, while it ran")
        assert is_gone(process_id)
        agent.wait_for("its end is no longer wanted")
        polls = len(server.asked)
        wait_until(lambda: len(server.asked) >= polls + 3)
        results = [path for method, path, _ in server.asked if method == "POST" and path.endswith("/result")]
        # Perhaps one of progress, and the end once.
        assert len(results) <= 2
        assert len([path for _, path, _ in server.asked if "status=canceled" in path]) == 1
        assert agent.terminate(SOON_S)[0] == 0
    finally:
        server.stop()
