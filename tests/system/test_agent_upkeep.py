"""The real agent under new configurations, good ones and deadly ones, and an agent that would die for ever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from agent.config import load_config
from tests.system.agent_bench import AgentBench, plugin_folder, wait_until

LONG_S = 90.0
"""A start of the agent takes a second of processor time, and this machine may have other work."""

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]

PROBATION = (
    "  handlers:\n    update_config:\n      settings: {probation_s: %s, allow: [logging, sensors, commands.poll]}\n"
)
BOARD = "sensors:\n- {name: board, type: system, interval_s: 60}\n"

# A sensor that takes the whole process down as soon as it is created, when a file says so.
DEADLY = """
import os
from pathlib import Path
from agent import Sensor, SensorSettings

class Deadly(Sensor):
    type = "deadly"
    description = "Ends the process."

    class Settings(SensorSettings):
        trigger: str

    def __init__(self, settings):
        super().__init__(settings)
        if Path(settings.trigger).exists():
            os._exit(9)

    def read(self):
        return {"alive": 1.0}
"""


@pytest.fixture
def plugin(tmp_path) -> dict[str, str]:
    """The environment in which the deadly sensor is installed."""
    folder = plugin_folder(tmp_path, "deadly_plugin", DEADLY, "[agent.sensors]\ndeadly = deadly_plugin:Deadly\n")
    return {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])}


class Service:
    """What a service manager does: starts the agent again whenever it dies."""

    def __init__(self, bench: AgentBench, **environ: str) -> None:
        self._bench = bench
        self._environ = environ
        self.codes: list[int] = []
        self._stop = threading.Event()
        self._agent: subprocess.Popen[bytes] | None = None
        self._log = (bench.folder / "agent.log").open("ab")
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def kill(self) -> None:
        assert self._agent is not None
        self._agent.kill()

    def log(self) -> str:
        return (self._bench.folder / "agent.log").read_text("utf-8", "replace")

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.log(), LONG_S)

    def close(self) -> None:
        self._stop.set()
        if self._agent is not None:
            self._agent.terminate()
        self._thread.join()
        self._log.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._agent = subprocess.Popen(
                [sys.executable, "-m", "agent.cli", "run", "--config", str(self._bench.config)],
                stderr=self._log,
                env={**os.environ, **self._environ},
            )
            if self._stop.is_set():
                self._agent.terminate()
            self.codes.append(self._agent.wait())


@pytest.fixture
def manage(bench):
    started: list[Service] = []

    def start(**environ: str) -> Service:
        started.append(Service(bench, **environ))
        return started[-1]

    yield start
    for each in started:
        each.close()


def part_of(bench: AgentBench, name: str) -> str | None:
    """The state of a part of the agent, as it told it last."""
    parts = json.loads((bench.state_dir / "status.json").read_text())["parts"]
    return parts[name]["state"] if name in parts else None


def poll_interval(bench: AgentBench) -> float:
    return load_config(bench.config, {}).config.commands.poll.idle_s


class TestUpdateConfig:
    def test_a_good_one_is_kept_also_when_the_agent_is_killed_on_probation(self, bench, service, manage):
        bench.write_config(service.base_url, more=PROBATION % 10 + BOARD)
        manager = manage()
        manager.wait_for("agent=ready")
        command = bench.send(command="update_config", config="commands: {poll: {idle_s: 7}}\n")
        manager.wait_for("configuration=on_trial for 10 s, start 1")
        manager.kill()
        record = bench.wait_for(command, within_s=LONG_S)
        assert record.status == "succeeded"
        assert record.result["changed"] == ["commands.poll.idle_s"]
        assert record.result["starts"] == 2
        assert poll_interval(bench) == 7
        manager.wait_for(f"command={command} state=reported")  # the service has the result a moment before
        assert manager.log().count(f"command={command} state=reported") == 1
        assert bench.wait_for(bench.send(command="ping"), within_s=LONG_S).status == "succeeded"

    def test_one_that_makes_the_agent_crash_at_its_start_comes_back_by_itself(self, bench, service, manage, plugin):
        trigger = bench.folder / "trigger"
        bench.write_config(service.base_url, more=PROBATION % 30 + BOARD)
        manager = manage(**plugin)
        manager.wait_for("agent=ready")
        deadly = {"name": "deadly", "type": "deadly", "settings": {"trigger": str(trigger)}}
        command = bench.send(command="update_config", config={"sensors": [deadly]})
        # The check creates the sensor, too: it turns deadly after that.
        manager.wait_for("reason='a configuration on trial: sensors")
        trigger.write_text("")
        record = bench.wait_for(command, within_s=LONG_S)
        assert record.status == "failed"
        assert "rolled_back: " in record.status_reason
        assert "did not last until the end of the probation" in record.status_reason
        assert (bench.state_dir / "config.d" / "remote.yaml").read_text() == ""
        manager.wait_for(f"command={command} state=reported")  # the service has the result a moment before
        assert manager.log().count(f"command={command} state=reported") == 1
        assert bench.wait_for(bench.send(command="read_sensors"), within_s=LONG_S).result["readings"].keys() == {
            "board"
        }


class TestReload:
    def test_a_wrong_file_changes_nothing_and_a_right_one_counts_after_a_restart_in_place(self, bench, service):
        bench.write_config(service.base_url, more=BOARD)
        agent = bench.start()
        good = bench.config.read_text()
        bench.config.write_text(good + "loging: {level: debug}\n")
        os.kill(agent.pid, signal.SIGHUP)
        assert "did you mean 'logging'?" in agent.wait_for("reload=refused")
        wait_until(lambda: part_of(bench, "configuration") == "refused", LONG_S)

        bench.config.write_text(good.replace("interval_s: 60", "interval_s: 0.2").replace("idle_s: 1,", "idle_s: 2,"))
        os.kill(agent.pid, signal.SIGHUP)
        line = agent.wait_for("reload=restart for", LONG_S)
        assert "commands.poll.idle_s" in line
        assert "sensors.board.interval_s" in line
        # A second one may come at any moment of the restart.
        os.kill(agent.pid, signal.SIGHUP)
        assert bench.wait_for(bench.send(command="ping"), within_s=LONG_S).status == "succeeded"
        wait_until(lambda: len(list(bench.client.sensor_data(bench.device_id))) >= 3, LONG_S)
        os.kill(agent.pid, signal.SIGHUP)
        agent.wait_for("reload=done nothing changed", LONG_S)
        assert sum("agent=ready" in line for line in agent.lines) == 2
        assert agent.terminate(LONG_S)[0] == 0


class TestSafeMode:
    def test_a_plug_in_that_kills_the_agent_at_its_start_is_left_out_until_somebody_mends_it(
        self, bench, service, manage, plugin
    ):
        trigger = bench.folder / "trigger"
        trigger.write_text("")
        bench.write_config(
            service.base_url,
            more=f"safe_mode: {{starts: 2}}\nsensors:\n- {{name: deadly, type: deadly, "
            f"settings: {{trigger: '{trigger}'}}}}\n",
        )
        manager = manage(**plugin)
        manager.wait_for("mode=safe")
        assert manager.codes == [9, 9]
        identity = bench.wait_for(bench.send(command="identify"), within_s=LONG_S).result
        assert "did not stay up" in identity["mode"]
        refused = bench.wait_for(bench.send(command="read_sensors"))
        assert refused.status == "rejected"
        assert "left_alone_in_safe_mode" in refused.status_reason
        wait_until(lambda: part_of(bench, "mode") == "safe", LONG_S)

        trigger.unlink()
        restart = bench.send(command="restart_agent")
        assert bench.wait_for(restart, within_s=LONG_S).status == "succeeded"
        readings = bench.wait_for(bench.send(command="read_sensors"), within_s=LONG_S)
        assert readings.result["readings"] == {"deadly": {"alive": 1.0}}


class TestLogLevel:
    def test_it_is_talkative_for_a_while(self, bench, service):
        bench.write_config(service.base_url)
        agent = bench.start()
        first = bench.wait_for(bench.send(command="log_level", level="error", for_s=0.5)).result
        assert first["level"] == "error"
        agent.wait_for("log_level=back", LONG_S)
        last = bench.wait_for(bench.send(command="log_level", level="error", for_s=0)).result
        assert last["level"] == first["before"]
