"""Cases, campaigns, kills and cleanup as a person calls them, against the local service, with a bad network between."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from agent.wire.secret import Secret
from simulator.cli import program
from simulator.labels.payload import label_text
from simulator.login.tokens import TokenSet, token_set_text
from simulator.onboarding.journal import leftovers, read_journal
from tests.profiles import profile, switch
from tests.service_running import running

pytestmark = pytest.mark.long

EMAIL, PASSWORD = "ada@example.com", "correct horse battery staple"


@pytest.fixture(scope="module", name="bench")
def _bench():
    with running() as bench:
        yield bench


@pytest.fixture(name="fresh")
def _fresh(bench):
    bench.http.post("/_emulator/reset")
    return bench


@pytest.fixture(name="keys")
def _keys(bench, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(bench.service.secret_key.reveal())
    return ["--api-key", bench.service.api_key, "--secret-key-file", str(secret)]


@pytest.fixture(name="labels")
def _labels(fresh, tmp_path):
    """A manifest as ``labels make`` writes it, of so many labels; nobody looks at a picture."""
    product_id = fresh.product()

    def make(count):
        folder = tmp_path / "labels"
        folder.mkdir()
        made = [
            {"text": label_text(product_id, f"SN-{n}"), "product_id": product_id, "identifier": f"SN-{n}"}
            for n in range(count)
        ]
        (folder / "manifest.json").write_text(json.dumps({"format": "device-agent/labels/1", "labels": made}))
        return str(folder)

    return make


def onboard(*arguments):
    result = CliRunner().invoke(program, ["onboard", *map(str, arguments)], standalone_mode=False)
    assert "Traceback" not in result.output
    return result


def code(result):
    """What the process would end with."""
    return getattr(result.exception, "exit_code", result.return_value)


def devices(bench):
    return bench.http.get("/devices", params={"limit": 1000}).json()["data"]


def test_every_case_passes_at_the_local_service_and_leaves_nothing_behind(fresh, keys, tmp_path):
    other = fresh.service.add_account("other")
    (tmp_path / "other").write_text(other.secret_key.reveal())
    out = tmp_path / "cases"
    strangers = ["--other-api-key", other.api_key, "--other-secret-key-file", tmp_path / "other"]
    result = onboard(
        "cases", "--base-url", fresh.service.base_url, *keys, *strangers, "--repeat", 2, "--out", out, "--json"
    )
    assert code(result) == 0, result.output
    report = json.loads(result.stdout)
    assert {case["verdict"] for case in report["cases"]} == {"passed"}
    assert len(report["cases"]) == 90
    assert devices(fresh) == []
    assert fresh.http.get("/products").json()["data"] == []
    assert {"journal.jsonl", "report.json"} == {path.name for path in out.iterdir()}
    for path in out.iterdir():
        text = path.read_text()
        assert fresh.service.secret_key.reveal() not in text
        assert other.secret_key.reveal() not in text
    assert leftovers(read_journal(out)[1]).count == 0


def test_a_bearer_of_the_token_file_may_do_the_same_and_is_never_written_down(fresh, tmp_path):
    fresh.service.add_user(EMAIL, PASSWORD)
    token = fresh.http.post("/auth/signin", json={"email": EMAIL, "password": PASSWORD}).json()["access_token"]
    file = tmp_path / "token.json"
    file.write_text(token_set_text(TokenSet(fresh.service.base_url, "partner", Secret(token))))
    out = tmp_path / "out"
    chosen = ["--only", "round_trip", "--only", "expired_label", "--only", "race_two_users"]
    result = onboard("cases", "--token-file", file, *chosen, "--out", out)
    assert code(result) == 0, result.output
    assert "3 cases: 3 fit" in result.stdout
    assert not any(token in path.read_text() for path in out.iterdir())


@pytest.mark.parametrize(
    "kind",
    [
        ({"lose": "answer"}, "plain"),
        ({"lose": "answer"}, "complete"),
        ({"answer": {"status": 500}}, "plain"),
        ({"latency": {"fixed_s": 0.6}}, "plain"),
    ],
)
def test_a_campaign_through_a_bad_network_registers_each_label_once(fresh, keys, labels, tmp_path, kind):
    effect, base = kind
    folder = labels(16)
    switch(fresh, profile(base))
    times = {"probability": 0.4, "seed": 3}
    fault = fresh.http.post("/_emulator/faults", json={"effect": effect, "times": times}).json()
    wanted = ["--base-url", fresh.service.base_url, *keys, "--user-id", "u-1", "--out", tmp_path / "out"]
    result = onboard("campaign", folder, *wanted, "--timeout-s", "0.3")
    hits = fresh.http.get(f"/_emulator/faults/{fault['fault_id']}").json()["hits"]
    fresh.http.delete("/_emulator/faults")
    if code(result) != 0:  # a label may be left unsettled, for the next start
        result = onboard("campaign", folder, *wanted, "--timeout-s", "60")
    switch(fresh, profile())
    assert code(result) == 0, result.output
    assert hits > 2
    assert sorted(one["device_identifier"] for one in devices(fresh)) == sorted(f"SN-{n}" for n in range(16))
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["list_at_the_end"]["agrees"] is True


def test_a_campaign_that_is_killed_goes_on_and_can_be_taken_back(fresh, keys, labels, tmp_path):
    folder, out = labels(60), tmp_path / "out"
    service = ["--base-url", fresh.service.base_url, *keys]
    campaign = ["campaign", folder, *service, "--user-id", "u-1", "--out", str(out)]
    with subprocess.Popen(
        [sys.executable, "-m", "simulator.cli", "onboard", *campaign, "--rate", "10"], stderr=subprocess.PIPE
    ) as process:
        assert b"15 of 60" in process.stderr.readline()
        process.send_signal(signal.SIGKILL)
    before = {one["device_identifier"]: one["device_id"] for one in devices(fresh)}
    assert 15 <= len(before) < 60
    result = onboard(*campaign, "--json")
    assert code(result) == 0, result.output
    report = json.loads(result.stdout)
    assert report["settled_earlier"] >= 14
    after = {one["device_identifier"]: one["device_id"] for one in devices(fresh)}
    assert len(devices(fresh)) == 60
    assert before.items() <= after.items()

    kept = fresh.device(next(iter(devices(fresh)))["product_id"], "not-ours", "u-1")
    assert code(onboard("cleanup", out, "--base-url", "http://127.0.0.1:1", *keys)) == 2
    cleaned = onboard("cleanup", out, *service)
    assert (code(cleaned), cleaned.stdout.strip()) == (0, "removed 60 device(s) and 0 product(s)")
    assert [one["device_id"] for one in devices(fresh)] == [kept]


def test_what_a_run_kept_is_found_by_its_mark_without_a_journal(fresh, keys):
    service = ["--base-url", fresh.service.base_url, *keys]
    kept = fresh.device(identifier="not-ours")
    assert code(onboard("cases", *service, "--only", "register_twice", "--only", "return", "--keep")) == 0
    assert code(onboard("cases", *service, "--only", "take_over", "--keep")) == 0
    shown = onboard("cleanup", "--marked", *service)
    assert code(shown) == 1
    assert "3 thing(s) would be removed" in shown.stdout
    assert code(onboard("cleanup", "--marked", "--yes", *service)) == 0
    assert [one["device_id"] for one in devices(fresh)] == [kept]
    assert code(onboard("cleanup", "--marked", *service)) == 0
