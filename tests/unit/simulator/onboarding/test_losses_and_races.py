"""A lost answer costs one case, a service that is gone ends the run, and races are repeated until they show."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest
from click.testing import CliRunner

from agent.wire.devices import Device
from simulator.onboarding.cli import onboard_group
from tests.onboarding_fakes import FakeServer, MemoryService, Raw, fake_server

PLAYED = ("round_trip", "register_twice", "remove_twice", "return", "second_owner", "take_over", "scan_after_removal")


@pytest.fixture(name="cases")
def _cases(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    secret = tmp_path / "secret"
    secret.write_text("msk_a")

    def run(server, *more, only=PLAYED):
        way = ["--base-url", server.base_url, "--api-key", "mk_a", "--secret-key-file", str(secret)]
        chosen = [part for name in only for part in ("--only", name)]
        return CliRunner().invoke(onboard_group, ["cases", *way, *chosen, *more])

    return run


class Dropped(Exception):
    """Ends a request without an answer."""


class Dropping(FakeServer):
    """A server that drops its answers to the n-th onboarding request, or all from then on."""

    def __init__(self, first, last):
        super().__init__(self._drop)
        self._dropped, self._count, self._lock = range(first, last + 1), 0, threading.Lock()

    def _drop(self, _method, path, _body, right):
        with self._lock:
            self._count += path.startswith("/onboarding/")
            if self._count in self._dropped:
                raise Dropped
        return right

    def handle_error(self, request, client_address):
        request.shutdown(socket.SHUT_RDWR)


def played(server, cases, *more):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        return cases(server, *more)
    finally:
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("number", [1, 2, 9, 17])
def test_a_dropped_connection_costs_one_case(cases, number):
    with Dropping(number, number) as server:
        result = played(server, cases, "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 1, result.output
    assert (report["failed"], report["passed"], len(report["not_begun"])) == (1, False, 0), report["headline"]
    assert report["counts"]["passed"] == len(PLAYED) - 1
    assert report["stopped_by"] is None


def test_truncated_json_costs_one_case(cases):
    count = iter(range(1000))

    def quirk(_method, path, _body, right):
        if path.startswith("/onboarding/") and next(count) == 4:
            return 200, Raw(b'{"data": [{"dev')
        return right

    with fake_server(quirk) as server:
        report = json.loads(cases(server, "--json").stdout)
    assert (report["failed"], len(report["not_begun"])) == (1, 0)


def test_a_service_that_is_gone_for_good_ends_the_run_with_the_reason(cases):
    with Dropping(8, 100_000) as server:
        result = played(server, cases)
    assert result.exit_code == 5, result.output
    assert "stopped: " in result.stderr
    assert "case(s) not begun" in result.stderr
    assert "3 failed" in result.stdout


def test_what_was_skipped_is_never_said_to_fit(cases):
    with fake_server() as server:
        result = cases(server, only=("round_trip", "foreign_label"))
        report = json.loads(cases(server, "--json", only=("round_trip", "foreign_label")).stdout)
    assert result.exit_code == 0, result.output
    assert "2 cases: 1 fit, 1 skipped: it needs a second account" in " ".join(result.stdout.split())
    assert report["headline"].startswith("1 fit, 1 skipped: it needs a second account")


def test_what_failed_stands_first_and_its_text_begins_with_what_was_wrong(cases, tmp_path):
    def quirk(method, _path, _body, right):
        return (200, {}) if method == "DELETE" and right[0] == 404 else right

    with fake_server(quirk) as server:
        result = cases(server, "--out", str(tmp_path / "out"), only=("round_trip", "remove_twice"))
    assert result.exit_code == 1
    assert "remove: answered device removed" in result.stdout
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.index("remove_twice") < page.index("round_trip")
    assert "1 failed, 1 fit" in page


class Racy(MemoryService):
    """Looks whether the device is there, and writes it so many seconds later."""

    window_s = 0.0002

    def register_device(self, registration):
        found = self._find(registration.product_id, registration.device_identifier)
        until = time.perf_counter() + self.window_s
        while time.perf_counter() < until:
            time.sleep(0)
        if found is not None:
            return super().register_device(registration)
        with self._lock:
            self._count += 1
            self.registered += 1
            self.users.add(registration.user_id)
            device = Device.receive({"device_id": f"d-{self._count}", **registration.to_wire()})
            self.devices = {**self.devices, device.device_id: device}
            return device


def test_a_window_of_a_fifth_of_a_millisecond_is_found_without_any_option(cases):
    with fake_server() as server:
        server.memory = Racy(())
        result = cases(server, only=("race_same_user", "race_two_users"))
    assert result.exit_code == 1, result.output
    assert "found in play" in result.stdout


def test_races_that_fit_say_how_often_they_were_played_and_what_is_not_excluded(cases):
    with fake_server() as server:
        result = cases(server, "--repeat", "4", only=("race_same_user",))
        once = cases(server, "--repeat", "1", only=("race_same_user",))
        report = json.loads(cases(server, "--repeat", "4", "--json", only=("race_same_user",)).stdout)
    assert result.exit_code == 0
    assert "1 race(s) found no fault, each played 4 times; in " in result.stdout
    assert "not excluded: one that shows in fewer than 53% of the plays" in result.stdout
    assert "played once; in " in once.stdout
    assert "not excluded: any" in once.stdout
    assert report["cases"][0]["plays"] == 4
