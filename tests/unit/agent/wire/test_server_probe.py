"""The probe beside servers that a test makes up: quotas, other hosts, zones, shapes, and ``check --server``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.cli.program import device_agent
from agent.config.dialect import DialectConfig
from agent.errors import TransportError
from agent.wire.auth import BearerToken, KeyPair
from agent.wire.probe.commands import find_id_path
from agent.wire.probe.line import REQUESTS_MAX, ProbeLine
from agent.wire.probe.look import look
from agent.wire.probe.notes import Setting, dialect_text
from agent.wire.probe.report import ProbeReport, ProbeVerdict, RuleVerdict, report_lines
from agent.wire.probe.shapes import list_shape, time_form
from agent.wire.secret import Secret
from simulator.probe.writing import write
from tests.contract.test_command_source_port import Answer, ScriptedServer, serve  # noqa: F401 - a fixture

BASE_URL = "https://plain.example"
NOW_S = 1_767_225_600.0
DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


class Plain:
    """A small server that keeps every rule, and says nothing beyond them.

    Args:
        devices: what ``GET /devices`` answers.
        limited: so many requests are answered with 429 first.
        retry_after: of a 429; None has no such header.
        created_at: of the commands.
    """

    def __init__(
        self,
        devices: Any = None,
        *,
        limited: int = 0,
        retry_after: str | None = "7",
        created_at: str = "2026-01-01T00:00:00Z",
    ) -> None:
        self.devices = [{"device_id": "d1"}] if devices is None else devices
        self.limited = limited
        self.retry_after = retry_after
        self.created_at = created_at
        self.asked: list[httpx.Request] = []
        self.commands: list[dict[str, Any]] = []
        self.slept: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        if self.limited:
            self.limited -= 1
            headers = {"Date": DATE} if self.retry_after is None else {"Date": DATE, "Retry-After": self.retry_after}
            return httpx.Response(429, json={"error": "rate_limit_exceeded"}, headers=headers)
        status, value = self.answer(request)
        return httpx.Response(status, json=value, headers={"Date": DATE})

    def answer(self, request: httpx.Request) -> tuple[int, Any]:
        keys = (request.headers.get("x-api-key"), request.headers.get("x-secret-key"))
        if keys != ("mk_good", "msk_good"):
            return 401, {"error": "missing_credentials" if None in keys else "invalid_credentials"}
        what = f"{request.method} {request.url.path}"
        if what == "POST /commands/send":
            number = str(len(self.commands) + 1)
            payload = json.loads(request.content)["command_payload"]
            self.commands.append({"id": number, "command_payload": payload, "created_at": self.created_at})
        answers: dict[str, tuple[int, Any]] = {
            "GET /devices": (200, self.devices),
            "GET /products": (200, []),
            "GET /sensor-data": (200, []),
            "GET /devices/d1/commands": (200, self.commands),
            "POST /commands/send": (201, {}),
            "POST /sensor-data": (201, {}),
        }
        return answers.get(what, (404, {"error": "not_found"}))


def run(server: Callable[[httpx.Request], httpx.Response], *, may_write: bool = False) -> ProbeReport:
    slept = getattr(server, "slept", [])
    line = ProbeLine(
        BASE_URL,
        KeyPair("mk_good", Secret("msk_good")),
        transport=httpx.MockTransport(server),
        sleep=slept.append,
        wall=lambda: NOW_S,
    )
    with line:
        notes = look(line, device_id="d1")
        if may_write:
            write(notes, "d1", "0001")
        return notes.report(may_write=may_write)


def choice(report: ProbeReport, name: str) -> str | None:
    return next(each.value for each in report.choices if each.name == name)


def test_a_429_is_waited_out_as_the_server_asks():
    server = Plain(limited=1)
    report = run(server)
    assert server.slept == [7.0]
    assert report.standing is ProbeVerdict.GOOD
    assert choice(report, "retry_after") == "seconds"


@pytest.mark.parametrize("retry_after", ["7", None, "100000"])
def test_a_quota_that_stays_used_up_ends_the_probe_without_a_judgement(retry_after):
    server = Plain(limited=1_000, retry_after=retry_after)
    report = run(server)
    assert len(server.asked) <= 3
    assert report.standing is ProbeVerdict.INCONCLUSIVE
    held = {each.name for each in report.requirements if each.verdict is RuleVerdict.HOLDS}
    assert held == {"error_bodies", "rate_limit_429"}


def test_a_next_page_on_another_host_is_not_asked_for():
    server = Plain({"data": [{"device_id": "d1"}], "next": "https://other.example/devices?page=2"})
    report = run(server)
    assert {request.url.host for request in server.asked} == {"plain.example"}
    assert "another host" in next(each.loss for each in report.choices if each.name == "paging")


def test_no_more_requests_are_sent_than_said():
    server = Plain()
    report = run(server, may_write=True)
    assert len(server.asked) == report.requests <= REQUESTS_MAX


def test_a_server_without_readable_readings_is_not_praised_for_storing_them():
    report = run(Plain(), may_write=True)
    rule = next(each for each in report.requirements if each.name == "stores_readings")
    assert rule.verdict is RuleVerdict.BROKEN
    assert choice(report, "recorded_at") is None
    assert choice(report, "repeated_reading") is None


@pytest.mark.parametrize(
    ("created_at", "zone"),
    [("2026-01-01T02:00:00", "+02:00"), ("2025-12-31 18:30:00", "-05:30"), ("2026-01-01T00:00:00", "auto")],
)
def test_the_zone_of_times_without_one_comes_from_the_date_header(created_at, zone):
    report = run(Plain(created_at=created_at), may_write=True)
    assert choice(report, "created_at") == "naive"
    dialect = (yaml.safe_load(report.dialect) or {}).get("service", {}).get("dialect", {})
    assert DialectConfig.model_validate(dialect).time_zone == zone


def test_nobody_at_all_is_an_error():
    def silent(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(TransportError):
        run(silent)


def test_a_secret_that_the_server_repeats_is_in_no_report():
    def echo(request: httpx.Request) -> httpx.Response:
        return httpx.Response(500, json={"error": str(dict(request.headers))})

    report = run(echo)
    assert "msk_good" not in json.dumps(report.to_json())
    assert report.standing is not ProbeVerdict.GOOD


def test_the_gateway_is_named_and_judged_by_what_a_device_may_ask():
    def gateway(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/.well-known/device-service":
            return httpx.Response(200, json={"extensions": ["command-status", "recorded-at"]})
        if request.headers.get("authorization") != "Bearer token":
            return httpx.Response(401, json={"error": "missing_token"})
        if request.url.path == "/devices/d1/commands":
            is_known = set(request.url.params) <= {"status"}
            return httpx.Response(200 if is_known else 400, json={"data": []} if is_known else {"error": "invalid"})
        message = "The gateway has no such path: it serves the paths of devices only."
        return httpx.Response(404, json={"error": "not_found", "message": message})

    line = ProbeLine(BASE_URL, BearerToken(Secret("token")), transport=httpx.MockTransport(gateway), wall=lambda: NOW_S)
    with line:
        report = look(line, device_id="d1").report(may_write=False)
    assert report.is_gateway
    assert report.standing is ProbeVerdict.GOOD
    assert choice(report, "answered_by") == "gateway"
    assert choice(report, "unknown_parameter") == "refused"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("2026-01-01"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["data", "id", "status", "created_at", "next", "page", "total", "error", "x", "$date"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(status=st.sampled_from([200, 201, 204, 301, 401, 404, 429, 500]), value=_JSON, commands=_JSON)
def test_whatever_json_a_server_answers_there_is_a_report(status, value, commands):
    def server(request: httpx.Request) -> httpx.Response:
        body = commands if "commands" in request.url.path else value
        content = json.dumps(body).encode()
        return httpx.Response(200 if body is commands else status, content=content, headers={"Retry-After": "0"})

    report = run(server, may_write=True)
    "\n".join(report_lines(report)).encode()
    json.dumps(report.to_json()).encode()
    DialectConfig.model_validate((yaml.safe_load(report.dialect) or {}).get("service", {}).get("dialect", {}))


def test_a_redirect_is_named_and_not_followed():
    asked = []

    def server(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(302, headers={"Location": "https://other.example/login?secret=1"})

    report = run(server)
    assert set(asked) == {"plain.example"}
    assert report.standing is ProbeVerdict.BROKEN
    assert "a redirect to https://other.example, which is not followed" in report.requirements[0].seen


# --- shapes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ("2026-01-01T00:00:00Z", "rfc3339"),
        ("2026-01-01T00:00:00.123+00:00", "offset"),
        ("2026-01-01 00:00:00+00", "short_offset"),
        ("2026-01-01 00:00:00 UTC", "utc_word"),
        ("2026-01-01T00:00Z", "minutes"),
        ("Thu, 01 Jan 2026 00:00:00 GMT", "rfc1123"),
        ("2026-01-01 00:00:00", "naive"),
        (1_767_225_600, "epoch_s"),
        (1_767_225_600_000, "epoch_ms"),
        ("1767225600000000", "epoch_us"),
        ({"$date": "2026-01-01T00:00:00Z"}, "other"),
        ("yesterday", "unreadable"),
        (True, "unreadable"),
        (12, "unreadable"),
    ],
)
def test_the_form_of_a_time(value, form):
    assert time_form(value) == form


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ([1], "bare"),
        ({"data": [1]}, "data"),
        ({"success": True, "data": [1]}, "success_data"),
        ({"data": {"items": [1]}}, "data_items"),
        ({"devices": [1]}, "named"),
        ({"_embedded": {"devices": [1]}}, "hal"),
        ({"payload": {"rows": [1]}}, "payload.rows"),
        ({"a": {"x": 1}}, "by_id"),
    ],
)
def test_the_shape_of_a_list(value, shape):
    assert list_shape(value, [1], "devices") == shape


@pytest.mark.parametrize(
    ("items", "path"),
    [
        ([{"meta": {"uuid": "a"}}, {"meta": {"uuid": "b"}}], ("meta", "uuid")),
        ([{"command_uuid": 1}, {"command_uuid": 2}], ("command_uuid",)),
        ([{"device_id": "d1"}, {"device_id": "d2"}], None),
        ([{"ref": "same"}, {"ref": "same"}], None),
        ([{"command_payload": {"id": 1}}, {"command_payload": {"id": 2}}], None),
        ([{"ref": "a"}, {}], None),
    ],
)
def test_the_member_that_holds_an_id(items, path):
    assert find_id_path(items) == path


@pytest.mark.parametrize("wanted", [False, True])
def test_keys_that_are_only_wanted_are_comments(wanted):
    needed = [] if wanted else [Setting("results", "none", "no place")]
    text = dialect_text([*needed, Setting("recorded_at_reading", "t", "keeps the time", only_if_wanted=True)])
    section = (yaml.safe_load(text) or {}).get("service", {}).get("dialect", {})
    assert section == ({} if wanted else {"results": "none"})
    assert "recorded_at_reading" in text


# --- device-agent check --server ----------------------------------------------------------------------------------


def config_file(tmp_path, base_url: str, **dialect: Any) -> str:
    for name in ("api", "secret"):
        (tmp_path / name).write_text("mk_look_0001" if name == "api" else "msk_look_0001")
        (tmp_path / name).chmod(0o600)
    config = {
        "service": {"base_url": base_url, "dialect": dialect},
        "device": {"device_id": "d1"},
        "auth": {
            "allow_secret_key_on_device": True,
            "api_key_file": str(tmp_path / "api"),
            "secret_key_file": str(tmp_path / "secret"),
        },
        "state_dir": str(tmp_path / "state"),
    }
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(config))
    return str(tmp_path / "agent.yaml")


def test_check_server_takes_no_command_and_says_what_a_rule_costs(serve, tmp_path):  # noqa: F811
    def answers(method: str, target: str, headers: dict[str, str]) -> Answer:
        if {name.lower(): value for name, value in headers.items()}.get("x-secret-key") != "msk_look_0001":
            return Answer(403, {"error": "forbidden"})
        if target.partition("?")[0] in {"/devices", "/products", "/sensor-data"}:
            return Answer(body=[{"device_id": "d1"}] if target == "/devices" else [])
        return Answer(404, {"error": "not_found"})

    server, _ = serve(answers)
    done = CliRunner().invoke(
        device_agent, ["check", "--server", "--config", config_file(tmp_path, server.base_url), "--json"]
    )
    report = json.loads(done.stdout)
    assert done.exit_code == 1, done.output
    broken = {rule["name"] for rule in report["requirements"] if rule["verdict"] == "broken"}
    assert broken == {"missing_header_401", "invalid_credentials_401"}
    assert {method for method, _, _ in server.asked} == {"GET"}
    assert not [target for _, target, _ in server.asked if target.startswith("/devices/")]


def test_check_server_ends_with_5_where_nobody_answers(tmp_path):
    done = CliRunner().invoke(
        device_agent, ["check", "--server", "--config", config_file(tmp_path, "http://127.0.0.1:1")]
    )
    assert done.exit_code == 5, done.output
