"""What ``device-agent plugins list`` says of a plug-in beside an agent that runs."""

from __future__ import annotations

from agent.app.plugins import try_handlers, try_sensors
from agent.app.status import StatusFile
from agent.config import AgentConfig

CONFIG = AgentConfig.model_validate(
    {
        "service": {"base_url": "http://127.0.0.1:9"},
        "device": {"device_id": "d1"},
        "auth": {"mode": "bearer", "token_file": "/none"},
        "sensors": [{"name": "t", "type": "file", "settings": {"path": "/none", "reading": "x"}}],
    }
)


def status(**plugins: str) -> StatusFile:
    told = {name.replace("_", ":", 1): text for name, text in plugins.items()}
    return StatusFile("running", 1, "0.1.0", "d1", 0.0, 0.0, "boot", plugins=told)


def test_a_handler_has_the_state_that_the_running_agent_gives_it():
    def ping(running: StatusFile) -> tuple[str, str]:
        found = next(info for info in try_handlers(CONFIG, running) if info.name == "ping")
        return found.status, found.reason

    assert ping(status(handler_ping="ready")) == ("ready", "")
    reason = "the running agent has it as check_failed: no bus; here it is ready"
    assert ping(status(handler_ping="check_failed: no bus")) == ("failing", reason)
    assert ping(status()) == ("ready", "the running agent has not loaded it: restart it.")


def test_a_sensor_that_only_the_running_agent_can_read_is_ready():
    assert [info.status for info in try_sensors(CONFIG, None)] == ["failing"]
    assert [info.status for info in try_sensors(CONFIG, status(sensor_t="not read yet"))] == ["failing"]
    (found,) = try_sensors(CONFIG, status(sensor_t="ready"))
    assert found.status == "ready"
    assert "/none" in found.reason


def test_a_sensor_with_wrong_settings_is_not_ready_because_the_agent_runs_with_former_ones():
    sensor = CONFIG.sensors[0].model_copy(update={"settings": {"path": "/none"}})
    (found,) = try_sensors(CONFIG.model_copy(update={"sensors": (sensor,)}), status(sensor_t="ready"))
    assert found.status == "invalid_settings"
