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
from pydantic import ValidationError

from agent.adapters.metrics_server import MetricsServer
from agent.app.figures import OTHER, Figures
from agent.app.links import Links
from agent.app.metrics import MetricSources, make_registry
from agent.config.metrics import MetricsConfig
from agent.core.timekeeping import ServiceTime
from agent.core.values import CommandPoll, CommandState, Report, SendOutcome
from agent.errors import ConfigurationError, RateLimited, StorageError, TransportError
from agent.runtime.health import Part
from tests.factories import make_entry, make_moment, make_outcome, make_reading
from tests.fakes import FakeClock, FakeCommandSource, FakeJournal, FakeOutbox, FakeUplink


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def figures(clock) -> Figures:
    made = Figures(clock)
    made.handlers = frozenset({"ping"})
    return made


def links(source, uplink) -> Links:
    return Links(source=source, uplink=uplink, poll_wait_s=lambda: 0.0)


def sources(clock, figures, **changes) -> MetricSources:
    members = {
        "clock": clock,
        "started": clock.now(),
        "starts": 3,
        "figures": figures,
        "parts": dict,
        "outbox": FakeOutbox(clock).stats,
        "commands": FakeJournal().counts,
        "service_time": ServiceTime,
    }
    return MetricSources(**{**members, **changes})


def samples(page: bytes) -> dict[tuple[str, ...], float]:
    """Name and label values -> value, as an independent parser reads them."""
    found = {}
    for family in parse(page.decode()):
        assert family.documentation
        for sample in family.samples:
            found[sample.name, *sample.labels.values()] = sample.value
    return found


def shown(clock, figures, **changes) -> dict[tuple[str, ...], float]:
    page = generate_latest(make_registry(sources(clock, figures, **changes)))
    return samples(page)


class TestCounting:
    def test_commands_that_end_in_the_journal_are_counted_with_their_durations(self, clock, figures):
        inner = FakeJournal()
        journal = figures.journal(inner)
        journal.admit([make_entry("a"), make_entry("b"), make_entry("c", CommandState.SKIPPED)])
        for command_id, took_s, status in (("a", 0.05, "succeeded"), ("b", 700.0, "failed")):
            journal.start(command_id, make_moment(1000.0))
            finished = journal.finish(command_id, make_outcome(status), make_moment(1000.0 + took_s))
            assert finished == inner.known([command_id])[command_id]
        assert dict(figures.commands) == {("ping", "succeeded"): 1, ("ping", "failed"): 1}
        assert figures.durations == [0, 1, 0, 0, 0, 0, 1]
        assert figures.duration_sum_s == pytest.approx(700.05)

    def test_what_could_not_be_committed_is_not_counted(self, figures):
        inner = FakeJournal()
        journal = figures.journal(inner)
        inner.fault = "the disk is full"
        with pytest.raises(StorageError):
            journal.admit([make_entry("a", CommandState.FINISHED, outcome=make_outcome())])
        assert not figures.commands

    def test_a_command_that_outlived_a_reboot_has_no_duration(self, figures):
        begun, ended = make_moment(5000.0, boot_id="boot-1"), make_moment(10.0, boot_id="boot-2")
        figures.concluded(
            [make_entry("a", CommandState.FINISHED, started=begun, finished=ended, outcome=make_outcome())]
        )
        assert figures.commands["ping", "succeeded"] == 1
        assert sum(figures.durations) == 0

    def test_requests_are_counted_by_result_and_errors_go_on(self, clock, figures):
        error = RateLimited(429, "rate_limit_exceeded", retry_after_s=9.0)
        source = FakeCommandSource([CommandPoll(), CommandPoll(unchanged=True), TransportError("no"), error])
        uplink = FakeUplink()
        counted = figures.links(links(source, uplink))
        counted.source.poll(0.0)
        first_contact = clock.now()
        assert figures.last_contact == first_contact
        clock.advance(5)
        counted.source.poll(0.0)
        for raised in (TransportError, RateLimited):
            clock.advance(5)
            with pytest.raises(raised):
                counted.source.poll(0.0)
        assert isinstance(counted.uplink.send([]), SendOutcome)
        counted.uplink.report(Report("a", "succeeded"))
        assert dict(figures.requests) == {
            ("poll", "ok"): 1,
            ("poll", "unchanged"): 1,
            ("poll", "unreachable"): 1,
            ("poll", "rate_limited"): 1,
            ("readings", "ok"): 1,
            ("report", "ok"): 1,
        }
        assert figures.rate_limited == 1

    @given(names=st.lists(st.text(min_size=1, max_size=30), max_size=300))
    def test_names_from_outside_make_no_more_series(self, names):
        figures = Figures(FakeClock())
        figures.handlers = frozenset({"ping"})
        for name in names:
            figures.concluded([make_entry("a", CommandState.FINISHED, handler=name, outcome=make_outcome())])
        assert {handler for handler, _ in figures.commands} <= {"ping", OTHER}


class TestPage:
    def test_every_figure_is_there(self, clock, figures):
        began = clock.now()
        figures.concluded([make_entry("a", CommandState.FINISHED, outcome=make_outcome())])
        figures.failed("readings", RateLimited(429))
        figures.answered("poll")
        outbox = FakeOutbox(clock)
        outbox.put(make_reading())
        clock.advance(90)
        time = ServiceTime().observe(clock.now().wall_s + 7200.0, clock.now())
        parts = {"readings": Part("ok", 0.0), "sensor:board": Part("failing", 0.0, "the bus is dead")}
        found = shown(
            clock, figures, started=began, parts=lambda: parts, outbox=outbox.stats, service_time=lambda: time
        )
        assert found["device_agent_uptime_seconds",] == 90
        assert found["device_agent_starts_total",] == 3
        assert found["device_agent_part_ok", "readings"] == 1
        assert found["device_agent_part_ok", "sensor:board"] == 0
        assert found["device_agent_commands_total", "ping", "succeeded"] == 1
        assert found["device_agent_requests_total", "readings", "rate_limited"] == 1
        assert found["device_agent_rate_limited_total",] == 1
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

    def test_a_store_that_does_not_answer_is_a_figure_and_no_failure(self, clock, figures):
        def refuse():
            raise StorageError("the disk is full")

        found = shown(clock, figures, outbox=refuse)
        assert found["device_agent_store_up",] == 0
        assert ("device_agent_outbox_readings",) not in found

    def test_before_the_first_contact_nothing_is_made_up(self, clock, figures):
        found = shown(clock, figures)
        assert ("device_agent_last_contact_timestamp_seconds",) not in found
        assert ("device_agent_service_clock_offset_seconds",) not in found


class TestServer:
    def test_the_page_is_there_until_the_stop(self, clock, figures):
        server = MetricsServer(make_registry(sources(clock, figures)), "127.0.0.1", 0)
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
    @pytest.mark.parametrize(
        ("values", "words"),
        [
            ({"port": 9465, "host": "0.0.0.0"}, "allow_remote"),
            ({"port": 65_536}, "65535"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(self, values, words):
        with pytest.raises(ValidationError, match=words):
            MetricsConfig.model_validate(values)

    def test_a_host_of_the_network_must_be_allowed(self):
        assert MetricsConfig(port=0, host="0.0.0.0", allow_remote=True).port == 0

    def test_without_the_library_the_fix_is_named(self):
        code = (
            "import sys; sys.modules['prometheus_client'] = None\n"
            "from agent.errors import ConfigurationError\n"
            "try:\n    import agent.app.metrics\nexcept ConfigurationError as error:\n    print(error.faults[0])\n"
        )
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
        assert "pip install '.[device]' in a clone of device-agent" in found.stdout
