"""A lost answer costs one case, a service that is gone ends the run, and races are repeated until they show."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner

from agent.wire.devices import Device
from simulator.onboarding.cli import onboard_group
from tests.onboarding_fakes import MemoryService, fake_server
from tests.service_running import running

PLAYED = ("round_trip", "register_twice", "remove_twice", "return", "second_owner", "take_over", "scan_after_removal")


SCAN = ("POST", "/onboarding/scan-qr")
REGISTER = ("POST", "/onboarding/device")
LIST = ("GET", "/onboarding/user/{user_id}/devices")
REMOVE = ("DELETE", "/onboarding/device/{device_id}")


@pytest.fixture(name="cases")
def _cases(way, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")

    def run(*more, only=PLAYED, at=()):
        chosen = [part for name in only for part in ("--only", name)]
        return CliRunner().invoke(onboard_group, ["cases", *way, *at, *chosen, *more])

    return run


LOST = {"lose": "answer"}
CUT = {"truncate": {"end": "complete"}}


@pytest.mark.parametrize(
    ("endpoint", "after", "effect"),
    [(SCAN, 0, LOST), (REGISTER, 0, LOST), (LIST, 3, LOST), (REMOVE, 4, LOST), (SCAN, 0, CUT), (LIST, 1, CUT)],
)
def test_an_answer_that_is_lost_or_cut_off_costs_one_case(account, cases, endpoint, after, effect):
    fault = account.fault(*endpoint, **effect, after=after, next=1)
    result = cases("--json")
    report = json.loads(result.stdout)
    assert fault.hits == 1
    assert result.exit_code == 1, result.output
    assert (report["failed"], report["passed"], len(report["not_begun"])) == (1, False, 0), report["headline"]
    assert report["counts"]["passed"] == len(PLAYED) - 1
    assert report["stopped_by"] is None


def test_a_service_that_is_gone_for_good_ends_the_run_with_the_reason(account, cases):
    account.fault(lose="request", after=8)
    result = cases()
    assert result.exit_code == 5, result.output
    assert "stopped: " in result.stderr
    assert "case(s) not begun" in result.stderr
    assert "3 failed" in result.stdout


def test_what_was_skipped_is_never_said_to_fit(account, cases):
    only = ("round_trip", "foreign_label")
    # With its control paths the local service would give out a second account.
    with running(control=False, api_key=account.api_key, secret_key=account.secret_key) as bench:
        at = ("--base-url", bench.service.base_url)
        result = cases(only=only, at=at)
        report = json.loads(cases("--json", only=only, at=at).stdout)
    assert result.exit_code == 0, result.output
    assert "2 cases: 1 fit, 1 skipped: it needs a second account" in " ".join(result.stdout.split())
    assert report["headline"].startswith("1 fit, 1 skipped: it needs a second account")


def test_what_failed_is_said_with_what_was_wrong(account, cases, tmp_path):
    account.fault(*REMOVE, answer={"status": 200, "body": {}}, after=2, next=1)  # the second one of remove_twice
    result = cases("--out", str(tmp_path / "out"), only=("round_trip", "remove_twice"))
    assert result.exit_code == 1
    assert "remove: answered device removed" in result.stdout
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["headline"] == "1 failed, 1 fit"


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
        result = cases(only=("race_same_user", "race_two_users"), at=("--base-url", server.base_url))
    assert result.exit_code == 1, result.output
    assert "found in play" in result.stdout


def test_races_that_fit_say_how_often_they_were_played_and_what_is_not_excluded(cases):
    result = cases("--repeat", "4", only=("race_same_user",))
    once = cases("--repeat", "1", only=("race_same_user",))
    report = json.loads(cases("--repeat", "4", "--json", only=("race_same_user",)).stdout)
    assert result.exit_code == 0
    assert "1 race(s) found no fault, each played 4 times; in " in result.stdout
    assert "not excluded: one that shows in fewer than 53% of the plays" in result.stdout
    assert "played once; in " in once.stdout
    assert "not excluded: any" in once.stdout
    assert report["cases"][0]["plays"] == 4
