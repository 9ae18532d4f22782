"""Figures as Prometheus reads them, served where only this machine reads; e2e has them of a running agent."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families as parse

from agent.app.metrics import OTHER, AgentMetrics
from agent.core.timekeeping import ServiceTime
from agent.core.values import CommandState
from agent.errors import StorageError
from agent.health import Health
from agent.wire.instances import Instance
from tests.support.factories import make_entry, make_outcome
from tests.support.fakes import FakeClock, StoreInMemory


def make() -> tuple[AgentMetrics, Any]:
    """The figures of an agent with the handler ``ping``, and that agent."""
    clock = FakeClock()
    agent: Any = SimpleNamespace(
        process=SimpleNamespace(
            clock=clock,
            started=clock.now(),
            health=Health(clock),
            store=StoreInMemory(clock),
        ),
        instance=SimpleNamespace(instance=Instance(3, "process-1")),
        handlers=SimpleNamespace(ready=["ping"]),
        service_clock=SimpleNamespace(estimate=ServiceTime()),
    )
    return AgentMetrics(agent), agent


def shown(metrics: AgentMetrics) -> dict[tuple[str, ...], float]:
    """Name and label values -> value, as an independent parser reads them."""
    found = {}
    for family in parse(generate_latest(metrics.registry).decode()):
        assert family.documentation
        for sample in family.samples:
            found[sample.name, *sample.labels.values()] = sample.value
    return found


@given(names=st.lists(st.text(min_size=1, max_size=30), max_size=100))
def test_names_from_outside_make_no_more_series(names):
    metrics, _ = make()
    for name in names:
        metrics.ended(make_entry("a", CommandState.FINISHED, handler=name, outcome=make_outcome()))
    handlers = {key[1] for key in shown(metrics) if key[0] == "device_agent_commands_total"}
    assert handlers <= {"ping", OTHER}


def test_a_store_that_does_not_answer_is_a_figure_and_no_failure():
    def refuse() -> None:
        raise StorageError("the disk is full")

    metrics, agent = make()
    assert shown(metrics)["device_agent_store_up",] == 1
    agent.process.store.outbox.stats = refuse
    found = shown(metrics)
    assert found["device_agent_store_up",] == 0
    assert ("device_agent_outbox_readings",) not in found


def test_without_the_library_the_fix_is_named():
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from agent.errors import ConfigurationError\n"
        "try:\n    import agent.app.metrics\nexcept ConfigurationError as error:\n    print(error.faults[0])\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert "pip install '.[device]' in a clone of device-agent" in found.stdout
