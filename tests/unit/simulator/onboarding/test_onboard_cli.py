"""The command against the local service: real sockets, the real client."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator.labels import make_labels
from simulator.onboarding.cli import onboard_group

SCAN = ("POST", "/onboarding/scan-qr")


@pytest.fixture(name="labels")
def _labels(account, tmp_path):
    return make_labels(product_id=account.product_id, count=3, out=tmp_path / "labels", formats=["png"]).folder


def registered(account):
    return {device.device_identifier for device in account.client.devices()}


def _run(labels, account, key_file, *more, base_url=None):
    keys = ("--api-key", account.api_key, "--secret-key-file", str(key_file))
    way = ("--base-url", account.base_url if base_url is None else base_url, *keys)
    result = CliRunner().invoke(onboard_group, ["labels", str(labels), *way, "--user-id", "u-1", *more])
    assert account.secret_key.reveal() not in result.output
    assert "Traceback" not in result.output
    return result


def test_keep_registers_every_label_and_prints_a_table(labels, account, key_file):
    result = _run(labels, account, key_file)
    assert result.exit_code == 0, result.output
    assert registered(account) == {"SIM-000001", "SIM-000002", "SIM-000003"}
    assert "3 of 3 labels went the whole way for user u-1" in result.stdout
    assert "SIM-000002" in result.stdout
    assert "3 of them are registered now" in result.stdout


def test_a_label_that_is_there_twice_is_onboarded_once_and_said(labels, account, key_file):
    result = _run(labels, account, key_file, str(labels / "SIM-000002.png"), "--remove")
    assert result.exit_code == 0, result.output
    assert "3 of 3 labels went the whole way" in result.stdout
    assert "note: 1 label(s) say what one before them says, and were left out" in result.stderr
    told = json.loads(_run(labels, account, key_file, str(labels / "SIM-000002.png"), "--json").stdout)
    assert told["copies_left_out"] == 1


def test_remove_leaves_nothing_and_json_tells_each_step(labels, account, key_file):
    result = _run(labels, account, key_file, "--remove", "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert registered(account) == set()
    assert document["passed"] is True
    assert [step["action"] for step in document["journeys"][2]["steps"]] == [
        "scan",
        "register",
        "list",
        "remove",
        "list",
    ]
    assert document["unread"] == []


def test_single_pictures_may_be_given_instead_of_a_folder(labels, account, key_file):
    result = _run(labels / "SIM-000002.png", account, key_file)
    assert result.exit_code == 0
    assert registered(account) == {"SIM-000002"}


def test_a_failed_step_ends_with_code_1_and_a_line_that_names_it(labels, account, key_file):
    account.fault(*SCAN, answer={"status": 500, "body": {"error": "boom"}}, next=1)
    result = _run(labels, account, key_file)
    assert result.exit_code == 1
    assert "failed: SIM-000001: scan: answered server error (500 boom); expected product shown" in result.stderr
    assert "2 of 3 labels went the whole way" in result.stdout


def test_a_label_that_does_not_read_ends_with_code_1_and_the_others_are_onboarded(labels, account, key_file):
    (labels / "SIM-000002.png").write_bytes(b"\x89PNG")
    result = _run(labels, account, key_file, "--json")
    assert result.exit_code == 1
    assert "unread: " in result.stderr
    assert [Path(entry["source"]).name for entry in json.loads(result.stdout)["unread"]] == ["SIM-000002.png"]
    assert registered(account) == {"SIM-000001", "SIM-000003"}


def test_wrong_keys_end_with_code_2_after_one_request_and_name_the_options(labels, account, tmp_path):
    (tmp_path / "wrong").write_text("msk_wrong")
    result = _run(labels, account, tmp_path / "wrong")
    assert result.exit_code == 2
    assert "check --api-key and --secret-key-file, or --token-file; 2 label(s) not begun" in result.stderr
    account.received(exactly=1)  # the one that was refused


def test_a_service_that_is_down_ends_with_code_5_and_names_the_option(labels, account, key_file):
    with socket.socket() as bound_and_deaf:
        bound_and_deaf.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{bound_and_deaf.getsockname()[1]}"
        result = _run(labels, account, key_file, base_url=address)
    assert result.exit_code == 5
    assert "base_url" in result.stderr
    assert len(result.stderr.strip().splitlines()) <= 3  # progress twice at most, and one clear line


def test_a_captive_portal_ends_with_code_5(labels, account, key_file):
    portal = account.fault(
        answer={"status": 200, "headers": {"Content-Type": "text/html"}, "body": "<html>Guest Wi-Fi</html>"}
    )
    result = _run(labels, account, key_file)
    assert result.exit_code == 5
    portal.remove()
    assert registered(account) == set()


def test_a_quota_beyond_the_patience_is_a_failed_step(labels, account, key_file):
    account.fault(*SCAN, answer={"status": 429, "retry_after_s": 60}, next=1)
    result = _run(labels / "SIM-000001.png", account, key_file, "--max-wait-s", "1")
    assert result.exit_code == 1
    assert "--max-wait-s 1" in result.stderr


@pytest.mark.parametrize("content", [None, "", "  \n", b"\xff\xfe"])
def test_a_secret_key_file_that_gives_no_key_ends_with_code_2(labels, account, tmp_path, content):
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    result = _run(labels, account, path)
    assert result.exit_code == 2
    assert "--secret-key-file" in result.stderr


@pytest.mark.parametrize("base_url", ["not a url", "ftp://127.0.0.1", "", "http://"])
def test_a_base_url_that_is_none_ends_with_code_2(labels, account, key_file, base_url):
    result = _run(labels, account, key_file, base_url=base_url)
    assert result.exit_code == 2
    assert result.stderr.strip()


def test_a_missing_folder_ends_with_code_2_and_the_fix(tmp_path, account, key_file):
    result = _run(tmp_path / "nowhere", account, key_file)
    assert result.exit_code == 2
    assert "give pictures, PDF documents, or folders of pictures" in result.stderr


def test_an_empty_user_id_ends_with_code_2(labels, key_file):
    result = CliRunner().invoke(
        onboard_group,
        [
            "labels",
            str(labels),
            "--base-url",
            "http://127.0.0.1:9",
            "--api-key",
            "mk_t",
            "--secret-key-file",
            str(key_file),
        ],
        env={"FLEET_SIMULATOR_ONBOARD_LABELS_USER_ID": " "},
    )
    assert result.exit_code == 2
    assert "--user-id is empty" in result.stderr
