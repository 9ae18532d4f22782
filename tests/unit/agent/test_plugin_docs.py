"""The pages for plug-in authors tell everything that is built in."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

import agent
from agent.core.triage import CommandRules, triage
from agent.core.values import Command, Moment
from agent.handlers.built_in.run import Program, Run
from agent.handlers.built_in.update_config import UpdateConfig
from agent.handlers.built_in.write_file import WriteFile
from agent.handlers.executable import ExecutableSettings
from agent.handlers.registry import HandlerRegistry
from agent.plugins import PluginStatus
from agent.sensors.registry import _BUILT_INS, SensorRegistry, SensorSection

DOCS = Path(__file__).parents[3] / "docs"
HANDLERS = (DOCS / "handlers.md").read_text(encoding="utf-8")
SENSORS = (DOCS / "sensors.md").read_text(encoding="utf-8")
REGISTRY = HandlerRegistry.load(entry_points=())


def code_words(text: str) -> set[str]:
    return {word for piece in re.findall(r"`([^`\n]+)`", text) for word in re.findall(r"\w+", piece)}


def members_of(model: type[BaseModel] | None) -> set[str]:
    return set(model.model_fields) if model is not None else set()


@pytest.mark.parametrize("name", REGISTRY.names())
def test_each_built_in_handler_is_told_with_its_payload_settings_and_contract(name):
    loaded = REGISTRY.get(name)
    (row,) = re.findall(rf"^\| `{name}` \|.*$", HANDLERS, re.MULTILINE)
    assert members_of(loaded.handler.Payload) <= code_words(row)
    assert f"| {loaded.contract} |" in row
    assert members_of(loaded.handler.Settings) <= code_words(HANDLERS)


@pytest.mark.parametrize("model", [ExecutableSettings, Program])
def test_each_setting_of_a_program_is_told(model):
    assert members_of(model) <= code_words(HANDLERS)


def test_each_status_is_told():
    assert set(PluginStatus) <= code_words(HANDLERS)


@pytest.mark.parametrize("type_name", SensorRegistry.load({}, entry_points=()).types())
def test_each_built_in_sensor_is_told_with_its_settings(type_name):
    (section,) = re.findall(rf"^### `{type_name}`\n(.*?)(?=^##)", SENSORS, re.MULTILINE | re.DOTALL)
    module, _, attribute = _BUILT_INS[type_name].partition(":")
    settings = getattr(import_module(module), attribute).Settings
    assert members_of(settings) <= code_words(section)


def test_the_public_names_that_an_author_needs_are_told():
    told = set(re.findall(r"\w+", HANDLERS + SENSORS))
    unneeded = {"AgentControls", "NoPayload"}  # types behind context.controls and a handler without a payload
    assert set(agent.__all__) - unneeded <= told


@pytest.mark.parametrize("page", [HANDLERS, SENSORS])
def test_the_python_samples_run(page):
    samples = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert samples
    for sample in samples:
        exec(compile(sample, "sample", "exec", dont_inherit=True), {"__name__": "sample"})  # noqa: S102


def test_the_configuration_samples_are_what_the_models_take():
    samples = [
        yaml.safe_load(sample)
        for page in (HANDLERS, SENSORS)
        for sample in re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    ]
    models = {"run": Run.Settings, "update_config": UpdateConfig.Settings, "write_file": WriteFile.Settings}
    sections = [pair for sample in samples for pair in sample.get("commands", {}).get("handlers", {}).items()]
    assert {name for name, _ in sections} >= models.keys()
    for name, section in sections:
        if name in models:
            models[name].model_validate(section["settings"])
    executables = [settings for sample in samples for settings in sample.get("executables", {}).values()]
    assert executables
    for settings in executables:
        ExecutableSettings.model_validate(settings)
    sensors = [item for sample in samples for item in sample.get("sensors", [])]
    listing = SensorRegistry.load(
        {item["name"]: SensorSection(item["type"], settings=item.get("settings", {})) for item in sensors},
        entry_points=(),
    ).listing()
    assert [info.status for info in listing] == [PluginStatus.READY] * len(sensors)
    assert len(sensors) >= 2


def test_the_reason_for_a_command_without_a_name_is_the_one_that_the_agent_reports():
    rules = CommandRules(handlers={})
    moment = Moment(monotonic_s=0.0, boot_id="boot", wall_s=0.0)
    command = Command(id="c", payload={"name": "ping"}, size_bytes=16, status="queued")
    (decision,) = triage([command], {}, rules, received=moment, service_now_s=None, first_contact=False).decisions
    reported = decision.entry.outcome.error.partition(":")[0]
    assert reported == REGISTRY.find({"name": "ping"}, "command").code
    assert f"| `{reported}` |" in HANDLERS
