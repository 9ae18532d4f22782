"""Onboarding as QA does it: the suite against our service and against servers with planted faults, campaigns, kills."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

import pytest

from simulator.labels.payload import label_text
from simulator.service.variant import COMPLETE
from tests.support.onboarding_fakes import fake_server
from tests.support.service_running import running
from tests.support.variants import switch, variant

PROGRAM = (sys.executable, "-m", "simulator.cli", "onboard")


@pytest.fixture(scope="module", name="bench")
def _bench():
    with running() as bench:
        yield bench


@pytest.fixture(name="keys")
def _keys(bench, tmp_path):
    bench.http.post("/_emulator/reset")
    (tmp_path / "secret").write_text(bench.service.secret_key.reveal())
    return [*_to(bench.service.base_url, tmp_path)[:2], "--api-key", bench.service.api_key, *_secret(tmp_path)]


def _secret(tmp_path):
    return ["--secret-key-file", str(tmp_path / "secret")]


def _to(base_url, tmp_path):
    if not (tmp_path / "secret").exists():
        (tmp_path / "secret").write_text("msk_x")
    return ["--base-url", base_url, "--api-key", "mk_x", *_secret(tmp_path)]


def _run(*arguments):
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


def _manifest(tmp_path, product_id, count):
    made = [
        {"text": label_text(product_id, f"SN-{n}"), "product_id": product_id, "identifier": f"SN-{n}"}
        for n in range(count)
    ]
    (tmp_path / "manifest.json").write_text(json.dumps({"labels": made}))
    return tmp_path / "manifest.json"


def test_our_service_is_as_specified_and_nothing_is_left(bench, keys, tmp_path):
    done = _run("cases", *keys, "--strict", "--junit", tmp_path / "j.xml", "--run", tmp_path / "run.sqlite")
    assert done.returncode == 0, done.stdout + done.stderr
    suite = ET.parse(tmp_path / "j.xml").getroot()[0]
    assert int(suite.attrib["tests"]) > 300
    assert bench.http.get("/products").json()["data"] == []
    assert bench.http.get("/devices").json()["data"] == []


def test_what_a_killed_suite_has_made_is_taken_back_by_its_file(bench, keys, tmp_path):
    arguments = ["cases", *keys, "--run", tmp_path / "run.sqlite", "--repeat", "50"]
    process = subprocess.Popen([*PROGRAM, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(bench.http.get("/devices?limit=1000").json()["data"]) < 10:
        time.sleep(0.05)
        assert process.poll() is None
    process.kill()
    process.wait()
    assert bench.http.get("/products").json()["data"]
    done = _run("cleanup", tmp_path / "run.sqlite", *keys)
    assert done.returncode == 0, done.stderr
    assert bench.http.get("/products").json()["data"] == []
    assert bench.http.get("/devices").json()["data"] == []


def _wrong_owner(method, path, body, right):
    if method == "POST" and path == "/onboarding/device":
        return right[0], {**right[1], "user_id": "somebody-else"}
    return right


def _unknown_product_shown(method, path, body, right):
    is_refused = path == "/onboarding/scan-qr" and right[0] == 404
    return (200, {"product": {"name": "x"}}) if is_refused else right


class _RemovedStaysListed:
    def __init__(self, server):
        self.server, self.seen = server, {}

    def __call__(self, method, path, body, right):
        if method == "POST" and path == "/onboarding/device" and right[0] < 300:
            self.seen.setdefault(body["user_id"], {})[right[1]["device_id"]] = right[1]
        if method == "GET" and path.startswith("/onboarding/user/") and right[0] == 200:
            return 200, list(self.seen.get(path.split("/")[3], {}).values())
        return right


@pytest.mark.parametrize(
    ("fault", "failing"),
    [
        (None, set()),
        ("wrong owner", {"round_trip", "register_without_scan"}),
        ("registered twice", {"register_twice"}),
        ("removed is listed", {"round_trip"}),
        ("unknown product", {"unknown_product"}),
    ],
)
def test_a_planted_fault_fails_the_right_case_of_a_plain_server(tmp_path, fault, failing):
    with fake_server() as server:
        server.memory._careless = fault == "registered twice"
        quirks = {"wrong owner": _wrong_owner, "unknown product": _unknown_product_shown}
        server.quirk = _RemovedStaysListed(server) if fault == "removed is listed" else quirks.get(fault)
        names = ("round_trip", "register_without_scan", "register_twice", "unknown_product")
        select = " or ".join(f"test_order and {name}" for name in names)
        done = _run("cases", *_to(server.base_url, tmp_path), "--select", select, "--junit", tmp_path / "j.xml")
    failed = {
        case.attrib["name"].partition("[")[2].rstrip("]")
        for case in ET.parse(tmp_path / "j.xml").getroot().iter("testcase")
        if case.find("failure") is not None
    }
    assert failing <= failed, done.stdout
    assert done.returncode == (1 if failing else 0), done.stdout
    if fault in {None, "registered twice", "unknown product"}:
        assert failed == failing, done.stdout


def test_wrong_use_is_one_line(bench, keys, tmp_path):
    for arguments, code, words in (
        (["cases", *keys, "--select", "nothing_matches"], 2, "matches no test"),
        (["cases", "--base-url", bench.service.base_url], 2, "--api-key and --secret-key-file"),
        (["labels", tmp_path / "no", *keys, "--user-id", "u"], 2, "does not exist"),
        (["labels", tmp_path, *keys, "--user-id", ""], 2, "give an id"),
        (["cases", *_to(bench.service.base_url, tmp_path)], 2, "check --api-key"),
        (["cases", *_to("http://127.0.0.1:9", tmp_path)], 5, "127.0.0.1:9"),
    ):
        done = _run(*arguments)
        assert done.returncode == code, done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_a_campaign_that_is_killed_goes_on_and_registers_each_device_once(bench, keys, tmp_path):
    manifest, run = _manifest(tmp_path, bench.product(), 200), tmp_path / "run.sqlite"
    arguments = ["campaign", str(manifest), *keys, "--user-id", "u1", "--run", str(run)]
    process = subprocess.Popen([*PROGRAM, *arguments, "--rate", "60"], stderr=subprocess.DEVNULL)
    while len(bench.http.get("/devices?limit=1000").json()["data"]) < 40:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = _run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcomes"] == {"registered": 200}
    assert len(bench.http.get("/devices?limit=1000").json()["data"]) == 200
    assert _run("cleanup", run, *keys).stdout.startswith("200 device(s)")
    assert bench.http.get("/devices").json()["data"] == []


def test_labels_are_kept_and_then_removed_also_by_another_run(bench, keys, tmp_path):
    manifest = _manifest(tmp_path, bench.product(), 5)
    arguments = ["labels", manifest, *keys, "--user-id", "u1", "--json"]
    first = json.loads(_run(*arguments).stdout)
    assert first["outcomes"] == {"registered": 5}
    again = json.loads(_run(*arguments).stdout)
    assert again["outcomes"] == {"registered before": 5}
    assert again["devices"] == first["devices"]
    done = _run(*arguments, "--remove")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcomes"] == {"removed": 5}
    assert bench.http.get("/devices").json()["data"] == []


def test_a_campaign_that_is_resumed_removes_what_a_server_registered_without_a_body(tmp_path):
    """Such a server names no device: the list does."""

    def silent(method, path, body, right):
        return (204, None) if method == "POST" and path == "/onboarding/device" and right[0] < 300 else right

    with fake_server(silent) as server:
        server.memory.products.add("p-1")
        arguments = ["campaign", _manifest(tmp_path, "p-1", 5), *_to(server.base_url, tmp_path), "--user-id", "u1"]
        arguments += ["--run", tmp_path / "run.sqlite", "--json"]
        for more, outcomes in (((), {"registered": 5}), (("--remove",), {"removed": 5})):
            done = _run(*arguments, *more)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["outcomes"] == outcomes
        assert not server.memory.devices


@pytest.mark.parametrize(
    ("effect", "base"),
    [
        ({"lose": "answer"}, "plain"),
        ({"lose": "answer"}, "complete"),
        ({"answer": {"status": 500}}, "plain"),
        ({"answer": {"status": 429, "headers": {"Retry-After": "1"}}}, "plain"),
        ({"reset": "answer"}, "complete"),
    ],
    ids=str,
)
def test_a_campaign_through_a_bad_network_registers_each_label_once(bench, keys, tmp_path, effect, base):
    manifest, run = _manifest(tmp_path, bench.product(), 16), tmp_path / "run.sqlite"
    switch(bench, variant(base))
    try:
        body = {"effect": effect, "times": {"probability": 0.4}}
        fault_id = bench.http.post("/_emulator/faults", json=body).json()["fault_id"]
        arguments = ["campaign", str(manifest), *keys, "--user-id", "u1", "--run", str(run), "--json"]
        done = _run(*arguments)
        hits = bench.http.get(f"/_emulator/faults/{fault_id}").json()["hits"]
        bench.http.delete("/_emulator/faults")
        if done.returncode:  # a label may be left in doubt, for the next start
            done = _run(*arguments)
    finally:
        switch(bench, COMPLETE)
    assert done.returncode == 0, done.stderr
    assert hits > 2
    assert json.loads(done.stdout)["outcomes"] == {"registered": 16}
    devices = [one["device_identifier"] for one in bench.http.get("/devices").json()["data"]]
    assert len(devices) == len(set(devices)) == 16
    assert _run("cleanup", run, *keys).returncode == 0
    assert bench.http.get("/devices").json()["data"] == []


def test_a_cleanup_through_a_bad_network_takes_back_everything_and_nothing_else(bench, keys, tmp_path):
    product_id = bench.product()
    kept = bench.device(product_id, identifier="not-of-the-run")
    manifest, run = _manifest(tmp_path, product_id, 12), tmp_path / "run.sqlite"
    assert _run("campaign", str(manifest), *keys, "--user-id", "u1", "--run", str(run)).returncode == 0
    body = {"match": {"method": "DELETE"}, "effect": {"lose": "answer"}, "times": {"probability": 0.5}}
    fault_id = bench.http.post("/_emulator/faults", json=body).json()["fault_id"]
    done = _run("cleanup", run, *keys)
    assert bench.http.get(f"/_emulator/faults/{fault_id}").json()["hits"] > 2
    bench.http.delete("/_emulator/faults")
    if done.returncode:  # what is left in doubt is said, and taken back by the next start
        assert done.stderr or done.stdout
        done = _run("cleanup", run, *keys)
    assert done.returncode == 0, done.stderr
    assert [one["device_id"] for one in bench.http.get("/devices").json()["data"]] == [kept]


def test_a_list_that_a_server_cuts_accuses_nobody_and_is_not_green(tmp_path):
    def cut(method, path, body, right):
        is_list = method == "GET" and path.startswith("/onboarding/user/") and right[0] == 200
        return (200, right[1][:100]) if is_list else right

    with fake_server(cut) as server:
        server.memory.products.add("p-1")
        manifest = _manifest(tmp_path, "p-1", 130)
        arguments = ["--user-id", "u1", "--run", tmp_path / "run.sqlite", "--json"]
        done = _run("campaign", manifest, *_to(server.base_url, tmp_path), *arguments)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert (report["outcomes"], report["faults"]) == ({"registered": 130}, [])
    assert "may be cut" in report["unjudged"]
