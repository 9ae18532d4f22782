"""Figures: counted at the ports, shown as Prometheus reads them, served where only this machine reads."""

from __future__ import annotations

import socket
import subprocess
import sys

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families as parse

from agent.app.metrics import OTHER, AgentMetrics, Sources
from agent.app.metrics_server import MetricsServer
from agent.core.timekeeping import ServiceTime
from agent.core.values import CommandState
from agent.errors import ConfigurationError, StorageError
from agent.runtime.health import Health
from tests.factories import make_entry, make_moment, make_outcome, make_reading
from tests.fakes import FakeClock, FakeJournal, FakeOutbox


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def make(clock, **changes) -> AgentMetrics:
    members = {
        "clock": clock,
        "started": clock.now(),
        "starts": 3,
        "handlers": frozenset({"ping"}),
        "health": Health(clock),
        "outbox": FakeOutbox(clock).stats,
        "commands": FakeJournal().counts,
        "service_time": ServiceTime,
    }
    return AgentMetrics(Sources(**{**members, **changes}))


def shown(metrics: AgentMetrics) -> dict[tuple[str, ...], float]:
    """Name and label values -> value, as an independent parser reads them."""
    found = {}
    for family in parse(generate_latest(metrics.registry).decode()):
        assert family.documentation
        for sample in family.samples:
            found[sample.name, *sample.labels.values()] = sample.value
    return found


class TestCommands:
    def test_they_are_counted_by_handler_and_outcome_with_their_durations(self, clock):
        metrics = make(clock)
        for took_s, status in ((0.05, "succeeded"), (700.0, "failed")):
            times = {"started": make_moment(1000.0), "finished": make_moment(1000.0 + took_s)}
            metrics.ended(make_entry("a", CommandState.FINISHED, outcome=make_outcome(status), **times))
        metrics.ended(make_entry("b"))
        found = shown(metrics)
        assert found["device_agent_commands_total", "ping", "succeeded"] == 1
        assert found["device_agent_commands_total", "ping", "failed"] == 1
        buckets = {key[1]: value for key, value in found.items() if key[0].endswith("_duration_seconds_bucket")}
        assert (buckets["0.01"], buckets["0.1"], buckets["600.0"], buckets["+Inf"]) == (0, 1, 1, 2)
        assert found["device_agent_command_duration_seconds_sum",] == pytest.approx(700.05)

    def test_one_that_outlived_a_reboot_has_no_duration(self, clock):
        metrics = make(clock)
        begun, ended = make_moment(5000.0, boot_id="boot-1"), make_moment(10.0, boot_id="boot-2")
        metrics.ended(make_entry("a", CommandState.FINISHED, started=begun, finished=ended, outcome=make_outcome()))
        found = shown(metrics)
        assert found["device_agent_commands_total", "ping", "succeeded"] == 1
        assert found["device_agent_command_duration_seconds_count",] == 0

    @given(names=st.lists(st.text(min_size=1, max_size=30), max_size=100))
    def test_names_from_outside_make_no_more_series(self, names):
        metrics = make(FakeClock())
        for name in names:
            metrics.ended(make_entry("a", CommandState.FINISHED, handler=name, outcome=make_outcome()))
        handlers = {key[1] for key in shown(metrics) if key[0] == "device_agent_commands_total"}
        assert handlers <= {"ping", OTHER}


class TestPage:
    def test_every_figure_is_there(self, clock):
        health, outbox, began = Health(clock), FakeOutbox(clock), clock.now()
        metrics = make(clock, health=health, outbox=outbox.stats, service_time=lambda: time)
        health.put("readings", "rate_limited", "later")
        health.put("readings", "ok")
        health.put("commands", "ok")
        health.put("sensor:board", "failing", "the bus is dead")
        outbox.put(make_reading())
        clock.advance(90)
        time = ServiceTime().observe(clock.now().wall_s + 7200.0, clock.now())
        found = shown(metrics)
        assert found["device_agent_uptime_seconds",] == 90
        assert found["device_agent_starts_total",] == 3
        assert found["device_agent_part_ok", "readings"] == 1
        assert found["device_agent_part_ok", "sensor:board"] == 0
        assert found["device_agent_requests_total", "readings", "rate_limited"] == 1
        assert found["device_agent_requests_total", "commands", "ok"] == 1
        assert not [key for key in found if key[:2] == ("device_agent_requests_total", "sensor:board")]
        assert found["device_agent_last_contact_timestamp_seconds",] == pytest.approx(began.wall_s)
        assert found["device_agent_service_clock_offset_seconds",] == pytest.approx(7200.0)
        assert found["device_agent_store_up",] == 1
        assert found["device_agent_outbox_readings",] == 1
        assert found["device_agent_readings_accepted_total",] == 1
        assert found["device_agent_readings_dropped_total",] == 0
        assert found["device_agent_threads",] >= 1
        assert any(name[0] == "device_agent_info" for name in found)
        if sys.platform == "linux":
            assert found["device_agent_process_resident_memory_bytes",] > 1_000_000
            assert found["device_agent_process_cpu_seconds_total",] > 0

    def test_a_store_that_does_not_answer_is_a_figure_and_no_failure(self, clock):
        def refuse():
            raise StorageError("the disk is full")

        found = shown(make(clock, outbox=refuse))
        assert found["device_agent_store_up",] == 0
        assert ("device_agent_outbox_readings",) not in found

    def test_before_the_first_contact_nothing_is_made_up(self, clock):
        found = shown(make(clock))
        assert ("device_agent_last_contact_timestamp_seconds",) not in found
        assert ("device_agent_service_clock_offset_seconds",) not in found


class TestServer:
    def test_the_page_is_there_until_the_stop(self, clock):
        server = MetricsServer(make(clock).registry, "127.0.0.1", 0)
        try:
            assert "device_agent_uptime_seconds" in httpx.get(server.address, timeout=120).text
        finally:
            server.stop()
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.address, timeout=120)

    def test_a_port_that_is_taken_is_one_clear_line(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(ConfigurationError, match="metrics.port.*choose another"):
                MetricsServer(CollectorRegistry(), "127.0.0.1", port)


class TestConfiguration:
    def test_without_the_library_the_fix_is_named(self):
        code = (
            "import sys; sys.modules['prometheus_client'] = None\n"
            "from agent.errors import ConfigurationError\n"
            "try:\n    import agent.app.metrics\nexcept ConfigurationError as error:\n    print(error.faults[0])\n"
        )
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
        assert "pip install '.[device]' in a clone of device-agent" in found.stdout
