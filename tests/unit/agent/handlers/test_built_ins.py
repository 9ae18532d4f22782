"""The table of built-in handlers says what their classes say; a handler is imported with its first command."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from agent.handlers.base import Handler
from agent.handlers.built_ins import BUILT_INS, LateHandler
from agent.handlers.registry import HandlerRegistry, HandlerSection

READY = sorted(name for name, built_in in BUILT_INS.items() if not built_in.needs)


@pytest.mark.parametrize("name", READY)
def test_a_late_handler_is_registered_as_it_would_be_at_the_start(name):
    late, created = (HandlerRegistry.load(sections, entry_points=()) for sections in ({}, {name: HandlerSection()}))
    expected, found = created.get(name), late.get(name)
    assert isinstance(expected.handler, Handler)
    assert isinstance(found.handler, LateHandler)
    assert late.listing() == created.listing()
    for member in ("name", "contract", "timeout_s", "lane", "start_timeout_s", "inactivity_timeout_s", "max_attempts"):
        assert getattr(found, member) == getattr(expected, member), member
    assert (found.isolation, found.target, found.settings) == (expected.isolation, expected.target, expected.settings)
    assert found.handler.verifies() == expected.handler.verifies()
    assert found.handler.unwind_s() == expected.handler.unwind_s()
    assert found.handler.Payload is expected.handler.Payload


@pytest.mark.parametrize("name", sorted(BUILT_INS))
def test_the_table_names_the_class(name):
    module, _, attribute = BUILT_INS[name].target.partition(":")
    found = getattr(import_module(module), attribute)
    assert (found.name, found.description, found.contract) == (
        name,
        BUILT_INS[name].description,
        BUILT_INS[name].contract,
    )


def test_a_late_handler_is_made_once():
    made = []
    late = LateHandler(lambda: made.append(1) or "handler")
    assert late.upper() == "HANDLER"
    assert late.lower() == "handler"
    assert made == [1]


def test_a_handler_that_cannot_be_imported_any_more_rejects_its_commands():
    registry = HandlerRegistry.load(entry_points=())

    def create():
        raise OSError(5, "Input/output error")

    registry.get("ping").handler._create = create
    reason = str(registry.get("ping").validate({}))
    assert reason.startswith("handler_unusable: handler 'ping' could not be loaded: [Errno 5] Input/output error")


def test_loading_the_registry_imports_no_handler():
    code = """
import sys
from agent.handlers.registry import HandlerRegistry
registry = HandlerRegistry.load(entry_points=())
before = set(sys.modules)
print([name for name in sorted(before) if name.startswith("agent.handlers.")])
registry.get("ping").validate({})
print(sorted(name for name in set(sys.modules) - before if name.startswith("agent.handlers.")))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    first, second = found.stdout.splitlines()
    assert first == str([f"agent.handlers.{name}" for name in ("built_ins", "loaded", "registry")])
    assert second == str([f"agent.handlers.{name}" for name in ("base", "ping")])
