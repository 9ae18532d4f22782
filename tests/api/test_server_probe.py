"""``fleet-simulator probe``: what it says of our service, with each verdict, and what it sends."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from click.testing import CliRunner

from simulator.cli import program
from simulator.pytest_plugin.control import ServiceUnderTest
from simulator.service.clock import SystemClock
from simulator.service.variant import COMPLETE, PLAIN, ServerVariant
from tests.support.service_running import Bench
from tests.support.variants import running_as, switch, variant

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with running_as(COMPLETE, rate_limit=100_000, clock=SystemClock()) as made:
        yield made


def probe(bench: Bench, tmp_path, wanted: ServerVariant, *options: str, api_key: str = "") -> tuple[int, Any]:
    """Exit code and report on a server of this profile."""
    device_id = bench.device(identifier=f"SN-{next(_numbers):06d}")
    switch(bench, wanted)
    secret = tmp_path / "secret"
    secret.write_text(bench.service.secret_key.reveal())
    keys = ("--api-key", api_key or bench.service.api_key, "--secret-key-file", str(secret))
    arguments = [
        "--base-url",
        bench.service.base_url,
        *keys,
        "--device-id",
        device_id,
        "--timeout-s",
        "60",
        "--json",
        *options,
    ]
    done = CliRunner().invoke(program, ["probe", *arguments])
    assert bench.service.secret_key.reveal() not in done.output
    return done.exit_code, json.loads(done.stdout)


def found(report: Any) -> dict[str, tuple[str, str]]:
    return {each["name"]: (each["topic"], each["seen"]) for each in report["found"]}


@pytest.mark.parametrize("wanted", [COMPLETE, PLAIN], ids=["complete", "plain"])
def test_a_server_that_keeps_every_rule_ends_with_0(bench, tmp_path, wanted):
    code, report = probe(bench, tmp_path, wanted, "--may-write")
    assert code == 0, report
    lines = found(report)
    assert lines["recorded_at"][1].startswith("kept" if wanted is COMPLETE else "not kept")
    assert lines["idempotency_key"][1].startswith("stored once" if wanted is COMPLETE else "stored twice")
    assert lines["command_id"] == ("choice", "id")
    assert ("recorded-at" in lines["extensions"][1]) is (wanted is COMPLETE)
    assert report["written"]


def test_a_broken_rule_is_named_and_ends_with_1(bench, tmp_path):
    code, report = probe(bench, tmp_path, variant(error_shape="problem"), "--may-write")
    assert code == 1
    assert {name for name, (topic, _) in found(report).items() if topic == "BROKEN"} == {"error_bodies"}


def test_without_writing_only_gets_are_sent_and_no_command_is_taken(bench, tmp_path):
    with closing(ServiceUnderTest(bench.service.base_url)) as service:
        since = service.since_now()
        code, report = probe(bench, tmp_path, variant("plain", command_list="once"))
        sent = service.requests(**since)
        lists = service.requests("GET", "/devices/{device_id}/commands", **since)
    assert code == 0, report
    assert {one["method"] for one in sent if one["path"] != "/onboarding/device"} <= {"GET", "POST"}
    assert not lists
    assert not report["written"]


def test_keys_that_are_refused_judge_nothing(bench, tmp_path):
    code, report = probe(bench, tmp_path, COMPLETE, api_key="mk_nobody")
    assert code == 3
    assert found(report)["lists_devices"][0] == "not judged"


def test_usage_and_a_server_that_is_not_there(tmp_path):
    (tmp_path / "secret").write_text("msk_probe")
    keys = ("--api-key", "mk_x", "--secret-key-file", str(tmp_path / "secret"))
    assert (
        CliRunner().invoke(program, ["probe", "--base-url", "http://127.0.0.1:1", *keys, "--may-write"]).exit_code == 2
    )
    assert CliRunner().invoke(program, ["probe", "--base-url", "http://127.0.0.1:1", *keys]).exit_code == 5
