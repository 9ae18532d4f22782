"""The fixtures for pytest, in test suites of somebody else's: they work, alone and with xdist, and leave nothing."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.system.pytest_runs import ROOT, run_pytest

pytestmark = pytest.mark.long

FIRST = """
import httpx
import pytest
from simulator.pytest_plugin.control import ControlRefused

URLS = []

def test_an_account_is_empty_and_has_keys(account):
    assert account.client.products() == [] or list(account.client.products()) == []
    assert httpx.get(account.base_url + "/products", headers=account.headers, trust_env=False).status_code == 200

@pytest.mark.parametrize("_", range(2))
def test_each_test_has_an_account_of_its_own_at_the_same_service(account, device_service, _):
    URLS.append(device_service.base_url)
    assert len(set(URLS)) == 1
    account.device("SN-1")
    assert len(list(account.client.devices())) == 1

def test_two_accounts_see_nothing_of_each_other(account, device_service):
    device_id = account.device()
    with device_service.account(quota=2) as other:
        assert other.api_key != account.api_key
        assert list(other.client.devices()) == []
        with pytest.raises(ControlRefused, match="device_not_found"):
            other.readings(device_id)

def test_a_script_and_a_clock(account, device_service):
    device_id = account.device()
    account.script(device_id, answers=[{"after_s": 3600, "result": {"n": 1}}])
    device_service.clock.freeze("2026-01-01T00:00:00Z")
    command_id = account.send(device_id, "measure", ttl_seconds=7200, mode="slow")
    device_service.clock.advance(3601)
    assert device_service.clock.now() == "2026-01-01T01:00:01.000Z"
    assert account.wait_for_command(device_id, command_id)["result"] == {"n": 1}

def test_the_next_test_finds_neither(device_service):
    assert device_service.control.get("devices") == {"data": []}
    assert device_service.control.get("clock")["mode"] == "real"

def test_a_snapshot_brings_everything_back_as_often_as_one_wants(account, device_service):
    account.device("SN-1")
    saved = device_service.snapshot()
    for _ in range(2):
        account.device("SN-2")
        saved.load()
        assert [one.device_identifier for one in account.client.devices()] == ["SN-1"]

def test_it_is_gone_with_its_test(device_service):
    assert device_service.control.get("snapshots")["data"] == []

def test_what_cannot_be_is_refused_in_the_services_words(device_service):
    with pytest.raises(ControlRefused, match=r"^device_not_found: .*HTTP 404.$"):
        device_service.script("nobody")

def test_a_fault_is_met_and_what_came_is_counted(account):
    fault = account.fault("GET", "/products", answer={"status": 503}, after=1, next=1)
    assert [account.http.get("/products").status_code for _ in range(3)] == [200, 503, 200]
    assert (fault.matched, fault.hits) == (2, 1)
    assert account.received("GET", "/products", exactly=3) == 3
    assert account.received("GET", "/products", status="503") == 1
    account.fault("GET", "/products", lose="request")

def test_an_expectation_that_does_not_hold_names_what_comes_nearest(account, device_service):
    assert account.http.get("/products").status_code == 200
    assert device_service.control.get("faults") == {"data": []}
    with pytest.raises(AssertionError) as refused:
        account.received("POST", "/products", exactly=1)
    assert "expected exactly 1 of POST /products" in str(refused.value)
    assert "nearest: GET /products -> 200" in str(refused.value)
    with pytest.raises(ControlRefused, match="device_id"):
        account.received("GET", "/products", device_id="nobody")
    with pytest.raises(ControlRefused, match="lose"):
        account.fault("GET", lose="everything")

def test_each_request_of_an_account_is_listed_with_its_answer(account):
    for _ in range(3):
        account.http.get("/products", params={"limit": 1})
    listed = account.service.requests("GET", "/products", account_id=account.account_id, limit=2)
    assert [one["answer"]["status"] for one in listed] == [200, 200, 200]

def test_waiting_for_what_does_not_come_says_what_there_is(account):
    device_id = account.device()
    command_id = account.send(device_id, "ping")
    with pytest.raises(AssertionError, match="still queued"):
        account.wait_for_command(device_id, command_id, timeout_s=0)
    with pytest.raises(AssertionError, match="0 readings of 1"):
        account.wait_for_readings(device_id, timeout_s=0)
"""
OBSERVING = """
import httpcore
import httpx

def test_what_the_plug_in_asks_itself_pushes_nothing_out_of_the_log(account):
    device_id = account.device()
    assert account.http.post("/commands/send", json={"device_id": device_id, "command_payload": {}}).status_code == 202
    command_id = account.send(device_id, "ping")
    for _ in range(1010):
        account.command(device_id, command_id)
    assert account.received(exactly=1) == 1

def test_more_readings_are_waited_for_than_one_page_has(account):
    device_id = account.device()
    for _ in range(3):
        batch = [{"device_id": device_id, "sensor_data": {"n": n}} for n in range(500)]
        assert account.http.post("/sensor-data", json=batch).status_code == 200
    assert len(account.wait_for_readings(device_id, count=1001, timeout_s=10)) == 1500
    assert len(account.readings(device_id, limit=7)) == 7

def test_it_meets_no_fault_and_counts_for_no_quota_and_reads_every_variant(device_service):
    with device_service.account(quota=2, variant={"list_shape": "bare", "id_name": "id"}) as account:
        fault = account.fault(answer={"status": 503})
        device_id = account.device()
        for _ in range(3):
            assert account.readings(device_id) == []
        assert (fault.matched, account.http.get("/products").status_code) == (0, 503)
        fault.remove()
        assert [account.http.get("/products").status_code for _ in range(3)] == [200, 200, 429]

def test_mocks_of_another_service_do_not_meet_its_requests(account, device_service, monkeypatch):
    def mocked(*_, **__):
        raise AssertionError("nothing is mocked for this address")
    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", mocked)  # as pytest-httpx does
    monkeypatch.setattr(httpcore.ConnectionPool, "handle_request", mocked)  # as respx does
    device_id = account.device()
    assert account.readings(device_id) == []
    assert account.http.get("/products").status_code == 200
    assert [one.device_id for one in account.client.devices()] == [device_id]
    device_service.clock.freeze()
"""
SECOND = """
def test_a_virtual_device_sends_and_answers(virtual_device, account):
    device = virtual_device(interval_s=0.2, signals={"level": {"kind": "constant", "value": 7}})
    stored = account.wait_for_readings(device.device_id, 2)
    assert stored[0]["sensor_data"] == {"level": 7}
    command_id = account.send(device.device_id, "ping")
    assert account.wait_for_command(device.device_id, command_id)["status"] == "succeeded"
    device.switch_off()
    device.switch_on()
    device.settle()
    assert device.ledger.accepted == len(account.readings(device.device_id))

def test_a_real_agent_runs_on_its_own_folder_and_survives_a_kill(agent_process, account):
    agent = agent_process(config={"sensors": [{"name": "board", "type": "system", "interval_s": 0.5}]})
    first = account.send(agent.device_id, "ping")
    assert account.wait_for_command(agent.device_id, first)["result"]["pong"] is True
    agent.kill()
    second = account.send(agent.device_id, "ping")
    agent.start()
    assert account.wait_for_command(agent.device_id, second)["status"] == "succeeded"
    assert account.wait_for_readings(agent.device_id)
    assert agent.status()["store"]
    assert agent.pid is not None
    assert agent.stop() == 0

def test_a_label_is_scanned(labels, account):
    label = labels("SN-000042")
    assert account.client.scan_qr(label.text).device_identifier == "SN-000042"
    assert label.path.read_bytes() == label.png
"""


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")])
def test_every_fixture_works_and_no_process_thread_port_or_folder_is_left(tmp_path, workers):
    (tmp_path / "test_first.py").write_text(FIRST)
    (tmp_path / "test_second.py").write_text(SECOND)
    done = run_pytest(tmp_path, "-q", *workers)
    assert done.exit_code == 0, done.output
    assert done.counts == {"passed": 16}
    assert len(done.left) == (3 if workers else 1)
    for left in done.left:
        assert [name for name in left["threads"] if "execnet" not in name.lower()] == [], left
        assert left["listening"] == []
    assert done.left[0]["children"] == [] or workers
    assert done.temporary == []


def test_the_plug_ins_own_requests_change_nothing_that_a_test_looks_at(tmp_path):
    (tmp_path / "test_observing.py").write_text(OBSERVING)
    done = run_pytest(tmp_path, "-q")
    assert done.counts == {"passed": 4}, done.output


def test_a_test_that_fails_or_is_interrupted_leaves_nothing_either(tmp_path):
    (tmp_path / "test_failing.py").write_text(
        dedent("""
            def test_it_fails(virtual_device, agent_process):
                virtual_device()
                agent_process()
                assert False

            def test_it_is_interrupted(account):
                raise KeyboardInterrupt
        """)
    )
    done = run_pytest(tmp_path, "-q")
    assert done.exit_code == 2, done.output
    assert done.left == [{"threads": [], "listening": [], "children": []}]
    assert done.temporary == []


def test_what_is_refused_or_does_not_hold_is_shown_at_the_line_of_the_test(tmp_path):
    (tmp_path / "test_refused.py").write_text(
        dedent("""
            def test_a_rule(account):
                account.fault("POST", "/nope", lose="answer")

            def test_a_member(account):
                account.fault("POST", loose="answer")

            def test_a_path(account):
                account.readings("nobody")

            def test_a_count(account):
                account.received("POST", "/products", exactly=7)
        """)
    )
    done = run_pytest(tmp_path, "-q")
    assert done.counts == {"failed": 4}, done.output
    assert "match.path: the service has no path '/nope'" in done.output
    assert "effect.loose: unknown member" in done.output
    assert "device_not_found" in done.output
    assert "exactly 7 of POST /products" in done.output
    assert "pytest_plugin/" not in done.output


def test_who_does_not_use_a_fixture_pays_for_no_import(tmp_path):
    (tmp_path / "test_other.py").write_text(
        dedent("""
            import sys

            def test_nothing_of_the_simulator_is_there():
                loaded = sorted(name for name in sys.modules if name.split(".")[0] in {"simulator", "agent", "gateway"})
                assert loaded == ["simulator", "simulator.pytest_plugin"]
                assert not {"httpx", "starlette", "fastapi", "pydantic"} & set(sys.modules)
        """)
    )
    done = run_pytest(tmp_path, "-q")
    assert done.exit_code == 0, done.output


def test_a_package_that_is_missing_is_named_with_the_way_to_get_it(tmp_path):
    (tmp_path / "test_one.py").write_text("def test_one(account):\n    pass\n")
    (tmp_path / "conftest.py").write_text("import sys\nsys.modules['fastapi'] = None\n")
    done = run_pytest(tmp_path, "-q")
    assert done.exit_code != 0
    assert "pip install '.[simulator]' in a clone of device-agent" in done.output


def test_the_entry_point_is_the_module_and_pytest_lists_the_fixtures(tmp_path):
    text = (ROOT / "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\n"simulator.pytest_plugin" = "simulator.pytest_plugin"' in text
    done = run_pytest(tmp_path, "-q", "--fixtures")
    for name in ("device_service [session scope]", "account", "virtual_device", "agent_process", "labels"):
        assert f"\n{name} --" in done.output, done.output
