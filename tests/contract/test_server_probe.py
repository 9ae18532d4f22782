"""The probe of a server: what it says of our service with each choice, what it sends, and the dialect it writes."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from agent.config.dialect import DialectConfig
from agent.wire.auth import BearerToken, KeyPair
from agent.wire.device_client import DeviceClient
from agent.wire.probe.line import REQUESTS_MAX, ProbeLine
from agent.wire.probe.look import look
from agent.wire.probe.report import ProbeReport, ProbeVerdict, RuleVerdict, report_lines
from agent.wire.secret import Secret
from simulator.cli import program
from simulator.probe.writing import write
from simulator.pytest_plugin.control import ServiceUnderTest
from simulator.service.clock import SystemClock
from simulator.service.profiles.model import COMPLETE, PLAIN, ServerProfile
from tests.contract.test_gateway_http import Bench as GatewayBench
from tests.profiles import choices, profile, running_as, switch
from tests.service_running import Bench, client

pytestmark = pytest.mark.long

GOLDEN = Path(__file__).parent / "golden"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with running_as(COMPLETE, rate_limit=100_000, clock=SystemClock()) as made:
        yield made


def probe(bench: Bench, wanted: ServerProfile, *, may_write: bool = True) -> ProbeReport:
    """The report on a server of this profile with two new devices."""
    device_id = bench.device(identifier=f"SN-{next(_numbers):06d}")
    bench.device(identifier=f"SN-{next(_numbers):06d}")
    switch(bench, wanted)
    keys = KeyPair(bench.service.api_key, bench.service.secret_key)
    with ProbeLine(bench.service.base_url, keys, timeout_s=60) as line:
        notes = look(line, device_id=device_id)
        if may_write:
            write(notes, device_id)
        assert line.sent <= REQUESTS_MAX
        return notes.report(may_write=may_write)


def value(report: ProbeReport, name: str) -> str | None:
    return next(choice.value for choice in report.choices if choice.name == name)


def dialect_of(report: ProbeReport) -> DialectConfig:
    document = yaml.safe_load(report.dialect) or {}
    return DialectConfig.model_validate(document.get("service", {}).get("dialect", {}))


# --- our own service ----------------------------------------------------------------------------------------------


def test_the_complete_service_keeps_every_rule_and_needs_no_dialect(bench):
    report = probe(bench, COMPLETE)
    assert report.standing is ProbeVerdict.GOOD
    assert {rule.name for rule in report.requirements} == {
        *("lists_devices", "lists_products", "lists_sensor_data", "bodies_are_json", "missing_header_401"),
        *("invalid_credentials_401", "unknown_404", "error_bodies", "takes_readings", "write_bodies_are_json"),
        *("stores_readings", "takes_commands", "lists_commands"),
    }
    assert dialect_of(report) == DialectConfig()
    assert {choice.name: choice.value for choice in report.choices} == {
        "extensions": "announced",
        "unknown_parameter": "refused",
        "list_shape": "data",
        "paging": "none",
        "time_format": "rfc3339",
        "date": "present",
        "device_listed": "yes",
        "registration": None,
        "command_id": "id",
        "status_words": "complete",
        "created_at": "rfc3339",
        "expires_at": "present",
        "command_order": "newest",
        "command_list": "everything",
        "results": "endpoint",
        "recorded_at": "kept",
        "repeated_reading": "once",
        "unknown_member": "refused",
        "write_body": "record",
        "write_status": "201",
        "wrong_keys": "401",
        "unknown_path": "complete",
        "error_shape": "complete",
        "rules": "yes",
        "analytics": "yes",
        "partner_access": "metadata",
        "quota_headers": "present",
        "retry_after": None,
        "connection": "keep_alive",
        "framing": "content_length",
        "content_type": "json",
        "encoding": "identity",
    }


@pytest.mark.parametrize(("name", "wanted"), [("complete", COMPLETE), ("plain", PLAIN)])
def test_the_terminal_report_is_as_it_was_agreed(name, wanted):
    with running_as(COMPLETE, rate_limit=100_000, clock=SystemClock()) as alone:
        report = probe(alone, wanted)
    text = "\n".join(report_lines(report)) + "\n"
    for pattern, word in (
        (r"http://127\.0\.0\.1:\d+", "http://server"),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}", "ID"),
        (r"probe([-_])[0-9a-f]{8}", r"probe\1MARK"),
        (r"(?s)announces .*?\n  server", "announces ...\n  server"),
        (r"(?s)offers batch.*?\n\n", "offers ...\n\n"),
        (r"opened \d+ connection", "opened 1 connection"),
        (r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "2026-01-01T00:00:00.000Z"),
    ):
        text = re.sub(pattern, word, text)
    assert text == (GOLDEN / f"probe-{name}.txt").read_text(encoding="utf-8")


def test_the_report_of_a_plain_server_says_what_is_lost_and_how_it_is_kept(bench):
    report = probe(bench, PLAIN)
    text = "\n".join(report_lines(report))
    assert report.standing is ProbeVerdict.GOOD
    assert "This server: offers no extensions (a plain server)" in text
    assert "readings that waited for the network get the time at which they arrived" in text
    assert '#     recorded_at_reading: "recorded_at_s"' in text
    assert "What could not be removed again" in text
    assert "Every rule holds: 13 hold, 0 broken, 0 not judged." in text
    assert json.loads(json.dumps(report.to_json()))["standing"] == "good"


# --- reading only -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wanted", [PLAIN, profile("plain", command_list="once"), COMPLETE], ids=["plain", "once", "all"]
)
def test_without_writing_only_gets_are_sent_and_no_command_is_taken(bench, wanted):
    switch(bench, wanted)
    with closing(ServiceUnderTest(bench.service.base_url)) as service:
        since = service.since_now()
        report = probe(bench, wanted, may_write=False)
        sent = service.requests(**since, **{"headers.user-agent": "device-agent*"})  # not what registers its devices
        lists = service.requests("GET", "/devices/{device_id}/commands", **since)
    assert {one["method"] for one in sent} == {"GET"}
    assert len(sent) == report.requests <= 30
    assert len(lists) == (1 if wanted is COMPLETE else 0)  # announced: the running commands alone
    assert report.standing is ProbeVerdict.GOOD
    assert not report.wrote


def test_what_was_not_observed_has_no_value_and_a_reason(bench):
    report = probe(bench, PLAIN, may_write=False)
    unseen = {choice.name: choice.seen for choice in report.choices if choice.value is None}
    assert unseen.keys() >= {"command_list", "command_id", "results", "repeated_reading", "write_body", "retry_after"}
    assert all(unseen.values())


# --- each choice --------------------------------------------------------------------------------------------------

_NAMES = {"id_name": "command_id", "discovery": "extensions", "date_offset_s": "date", "page_size": "paging"}
_VALUES: dict[tuple[str, Any], str] = {
    ("paging", "links_next"): "next_url",
    ("write_body", "text_ok"): "text",
    ("write_body", "text_created"): "text",
}
_NOT_PROBED = {"extensions", "absent_extensions", "registration", "retry_after", "id_type", "page_size", "paging"}
"""Apart from these each has a test of its own, or cannot be seen: see the tests below."""


def _expected(axis: str, chosen: Any) -> str:
    if axis == "discovery":
        return "none"
    if axis == "date_offset_s":
        return "differs"
    if axis == "results":
        return "table" if chosen == "table" else "none"
    return _VALUES.get((axis, chosen), str(chosen))


@pytest.mark.parametrize(
    ("axis", "chosen"), [(axis, chosen) for axis, chosen in choices() if axis not in _NOT_PROBED], ids=str
)
def test_each_choice_is_reported_as_what_it_is(bench, axis, chosen):
    base = {"results": "table"} if axis == "command_list" and chosen == "once" else {}
    report = probe(bench, profile(**{**base, axis: chosen}))
    assert value(report, _NAMES.get(axis, axis)) == _expected(axis, chosen)
    dialect_of(report)


@pytest.mark.parametrize(
    ("paging", "expected"),
    [
        ("complete", "cursor+link_header"),
        ("none", "none"),
        ("cursor", "cursor"),
        ("next_url", "next_url"),
        ("links_next", "next_url"),
        ("link_header", "link_header"),
        ("page_number", "page_number"),
        ("page_header", "page_header"),
        ("offset", "offset"),
    ],
)
def test_each_way_of_paging_is_named(bench, paging, expected):
    report = probe(bench, profile(paging=paging, page_size=1), may_write=False)
    assert value(report, "paging") == expected


def test_ids_that_are_numbers_are_said(bench):
    report = probe(bench, profile(id_type="integer"))
    assert "whole numbers" in next(choice.seen for choice in report.choices if choice.name == "command_id")


# --- the gateway --------------------------------------------------------------------------------------------------


def test_a_device_that_looks_at_its_gateway_is_told_so_and_takes_no_command():
    front = GatewayBench()
    try:
        front.backend.send("d1", "c1")
        with ProbeLine(front.front.base_url, BearerToken(Secret("t1")), timeout_s=60) as line:
            report = look(line, device_id="d1").report(may_write=False)
        assert front.backend.given == []
    finally:
        front.close()
    assert report.is_gateway
    assert report.standing is ProbeVerdict.GOOD, list(report_lines(report))
    assert next(report_lines(report)).endswith("as device-gateway answers: 9 requests, read only")


# --- rules that are broken ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axes", "rule"),
    [
        ({"wrong_keys": "403"}, "invalid_credentials_401"),
        ({"error_shape": "message"}, "error_bodies"),
        ({"error_shape": "html"}, "missing_header_401"),
        ({"write_body": "text_ok"}, "write_bodies_are_json"),
    ],
)
def test_a_broken_rule_is_named(bench, axes, rule):
    report = probe(bench, profile(**axes))
    assert report.standing is ProbeVerdict.BROKEN
    assert next(each.verdict for each in report.requirements if each.name == rule) is RuleVerdict.BROKEN


# --- the dialect --------------------------------------------------------------------------------------------------


def test_the_written_dialect_finds_the_ids_that_auto_does_not(bench):
    wanted = profile("plain", id_name="meta.uuid", results="403_html", command_list="once")
    report = probe(bench, wanted)
    section = dialect_of(report)
    assert section == DialectConfig(command_id="meta.uuid")
    assert "hands each command out once" in report.words
    assert "has no place for results (POST /database/runtime-data: 403)" in report.words
    switch(bench, COMPLETE)
    device_id = bench.device(identifier=f"SN-{next(_numbers):06d}")
    sent = bench.send(device_id)
    switch(bench, wanted)
    keys = KeyPair(bench.service.api_key, bench.service.secret_key)
    with DeviceClient(bench.service.base_url, keys, timeout_s=60, reading=section.dialect().reading) as device:
        [record] = device.device_commands(device_id).records
    assert record.id == sent


def test_extensions_that_are_not_announced_are_found_and_written(bench):
    report = probe(bench, profile(discovery="404_json"))
    section = dialect_of(report)
    assert section.extensions == ("idempotency-key", "recorded-at")
    assert section.results == "endpoint"
    assert "takes recorded_at" in report.words


def test_a_list_of_open_commands_alone_is_found_and_written(bench):
    axes = {"discovery": "404_json", "extensions": ("command-results",), "command_list": "open"}
    report = probe(bench, profile(**axes))
    assert dialect_of(report) == DialectConfig(command_lists="open", results="endpoint")
    assert "lists open commands alone" in report.words


# --- the command --------------------------------------------------------------------------------------------------


def run(tmp_path, *arguments: str, secret: str = "") -> Any:
    (tmp_path / "secret").write_text(secret or "msk_probe")
    return CliRunner().invoke(program, ["probe", *arguments, "--secret-key-file", str(tmp_path / "secret")])


def test_the_command_writes_a_page_and_ends_with_0(bench, tmp_path):
    switch(bench, PLAIN)
    page = tmp_path / "probe.html"
    arguments = (bench.service.base_url, "--api-key", bench.service.api_key, "--html", str(page), "--timeout-s", "60")
    done = run(tmp_path, *arguments, secret=bench.service.secret_key.reveal())
    assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    assert "When either header is missing, the response is 401 with an error body." in text
    assert "recorded_at_reading" in text
    assert bench.service.secret_key.reveal() not in text + done.output


def test_the_command_ends_with_3_where_the_keys_are_refused(bench, tmp_path):
    switch(bench, COMPLETE)
    done = run(tmp_path, bench.service.base_url, "--api-key", "mk_nobody", "--json", "--timeout-s", "60")
    assert done.exit_code == 3, done.output
    assert json.loads(done.stdout)["standing"] == "inconclusive"


def test_the_command_ends_with_1_where_a_rule_is_broken(bench, tmp_path):
    switch(bench, profile(wrong_keys="403"))
    arguments = (bench.service.base_url, "--api-key", bench.service.api_key, "--timeout-s", "60")
    done = run(tmp_path, *arguments, secret=bench.service.secret_key.reveal())
    assert done.exit_code == 1, done.output


def test_the_command_writes_only_for_a_named_device(bench, tmp_path):
    done = run(tmp_path, bench.service.base_url, "--api-key", "mk_x", "--may-write")
    assert done.exit_code == 2
    assert "--may-write needs --device-id" in done.output


def test_the_command_ends_with_5_where_nobody_answers(tmp_path):
    done = run(tmp_path, "http://127.0.0.1:1", "--api-key", "mk_x")
    assert done.exit_code == 5, done.output


def test_the_command_says_what_it_writes_before_and_after(bench, tmp_path):
    device_id = bench.device(identifier=f"SN-{next(_numbers):06d}")
    switch(bench, COMPLETE)
    arguments = (bench.service.base_url, "--api-key", bench.service.api_key, "--device-id", device_id, "--may-write")
    done = run(tmp_path, *arguments, "--timeout-s", "60", secret=bench.service.secret_key.reveal())
    assert done.exit_code == 0, done.output
    assert done.stderr.startswith("writes up to 5 readings of device")
    assert "What was written" in done.stdout
    with client(bench.service) as http:
        listed = http.get(f"/devices/{device_id}/commands").json()["data"]
    assert [command["status"] for command in listed] == ["rejected", "rejected"]
