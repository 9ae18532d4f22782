"""Each built-in handler is one module; a new one is a file more and nothing else."""

from __future__ import annotations

import sys

import pytest

from agent.config.commands import HandlerConfig
from agent.core.values import Contract
from agent.handlers import built_in
from agent.handlers.registry import HandlerRegistry
from agent.plugins import PluginStatus

LATCH = """
from agent.core.values import Contract
from agent.handlers.base import Handler, HandlerPayload, HandlerSettings


class Latch(Handler):
    name = "latch"
    description = "Closes the latch."
    contract = Contract.IDEMPOTENT
    timeout_s = 3.0
    {more}

    class Payload(HandlerPayload):
        turns: int

    class Settings(HandlerSettings):
        pin: int = 7

    def handle(self, payload, context):
        return {{"turned": payload.turns, "pin": self.settings.pin}}
"""


@pytest.fixture
def add_file(tmp_path, monkeypatch):
    """Puts one more module beside the built-in handlers."""
    monkeypatch.setattr(built_in, "__path__", [*built_in.__path__, str(tmp_path)])

    def add(name: str, text: str) -> None:
        monkeypatch.delitem(sys.modules, f"agent.handlers.built_in.{name}", raising=False)
        (tmp_path / f"{name}.py").write_text(text)

    return add


def load(sections=None, *, safe_mode=False) -> HandlerRegistry:
    return HandlerRegistry.load(sections, entry_points=(), safe_mode=safe_mode)


def info_of(registry: HandlerRegistry, name: str):
    (info,) = [info for info in registry.listing() if info.name == name]
    return info


def test_one_more_file_is_one_more_handler_with_settings_limits_and_a_line_in_the_listing(add_file):
    add_file("latch", LATCH.format(more="lane = 'doors'"))
    registry = load({"latch": HandlerConfig(timeout_s=9.0, settings={"pin": 3})})
    latch = registry.get("latch")
    assert (latch.contract, latch.timeout_s, latch.lane) == (Contract.IDEMPOTENT, 9.0, "doors")
    assert latch.handler.handle(latch.validate({"turns": 2}), None) == {"turned": 2, "pin": 3}
    info = info_of(registry, "latch")
    assert (info.origin, info.status, info.description) == ("built-in", PluginStatus.READY, "Closes the latch.")


@pytest.mark.parametrize(
    ("more", "status"), [("in_safe_mode = True", PluginStatus.READY), ("", PluginStatus.SAFE_MODE)]
)
def test_its_class_says_whether_it_is_there_in_safe_mode(add_file, more, status):
    add_file("latch", LATCH.format(more=more))
    assert info_of(load(safe_mode=True), "latch").status is status


def test_one_that_needs_settings_is_off_until_it_has_a_section(add_file):
    add_file("latch", LATCH.format(more="needs = 'a pin'"))
    info = info_of(load(), "latch")
    assert (info.status, info.reason) == (PluginStatus.DISABLED, "Handler 'latch' is off: it needs a pin.")
    assert load({"latch": HandlerConfig()}).get("latch") is not None


@pytest.mark.parametrize("text", ["raise OSError(5, 'Input/output error')", "import sys; sys.exit(3)", "", "x = ("])
def test_one_that_cannot_be_imported_is_listed_and_the_others_work(add_file, text):
    add_file("latch", text)
    registry = load()
    info = info_of(registry, "latch")
    assert info.status is PluginStatus.NOT_LOADED
    assert info.reason.startswith("The built-in handler 'latch' could not be imported: ")
    assert "ping" in registry.names()
