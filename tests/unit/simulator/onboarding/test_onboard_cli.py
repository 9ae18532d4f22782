"""The command against a small server on loopback: real sockets, the real client."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator.labels import make_labels
from simulator.onboarding.cli import onboard_group

SECRET = "msk_canary_1f0e"


class Server(ThreadingHTTPServer):
    """The onboarding group for one key pair, with answers that a test may put before its own."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Answers)
        self.devices: dict[str, dict] = {}
        self.first_answers: list[tuple[int, dict[str, str], bytes]] = []

    @property
    def base_url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_):
        pass

    def _say(self, status, body=None, headers=None):
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _answer(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"null")
        if self.server.first_answers:
            status, headers, raw = self.server.first_answers.pop(0)
            return self._say(status, raw, headers)
        if self.headers["x-secret-key"] != SECRET:
            return self._say(401, {"error": "unauthorized", "message": "invalid credentials"})
        devices = self.server.devices
        if self.path == "/onboarding/scan-qr":
            label = json.loads(body["qr_data"])
            known = label["device_identifier"] in {device["device_identifier"] for device in devices.values()}
            shown = {"product": {"product_id": label["product_id"]}, "already_registered": known}
            return self._say(200, {**shown, "device_identifier": label["device_identifier"], "qr_info": label})
        if self.path == "/onboarding/device":
            device = {**body, "device_id": f"d-{body['device_identifier']}"}
            devices[device["device_id"]] = device
            return self._say(201, device)
        if self.command == "DELETE":
            return self._say(204 if devices.pop(self.path.rsplit("/", 1)[1], None) else 404)
        user_id = self.path.split("/")[3]
        return self._say(200, [device for device in devices.values() if device["user_id"] == user_id])

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - the names that http.server calls


@pytest.fixture(name="server")
def _server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(name="labels")
def _labels(tmp_path):
    return make_labels(product_id="p-1", count=3, out=tmp_path / "labels", formats=["png"]).folder


@pytest.fixture(name="key_file")
def _key_file(tmp_path):
    path = tmp_path / "secret.key"
    path.write_text(f"{SECRET}\n")
    return path


def _run(labels, base_url, key_file, *more):
    keys = ("--api-key", "mk_test", "--secret-key-file", str(key_file))
    arguments = ["labels", str(labels), "--base-url", base_url, *keys, "--user-id", "u-1", *more]
    result = CliRunner().invoke(onboard_group, arguments)
    assert SECRET not in result.output
    assert "Traceback" not in result.output
    return result


def test_keep_registers_every_label_and_prints_a_table(labels, server, key_file):
    result = _run(labels, server.base_url, key_file)
    assert result.exit_code == 0, result.output
    assert set(server.devices) == {"d-SIM-000001", "d-SIM-000002", "d-SIM-000003"}
    assert "3 of 3 labels went the whole way for user u-1" in result.stdout
    assert "SIM-000002" in result.stdout
    assert "3 of them are registered now" in result.stdout


def test_a_label_that_is_there_twice_is_onboarded_once_and_said(labels, server, key_file):
    result = _run(labels, server.base_url, key_file, str(labels / "SIM-000002.png"), "--remove")
    assert result.exit_code == 0, result.output
    assert "3 of 3 labels went the whole way" in result.stdout
    assert "note: 1 label(s) say what one before them says, and were left out" in result.stderr
    told = json.loads(_run(labels, server.base_url, key_file, str(labels / "SIM-000002.png"), "--json").stdout)
    assert told["copies_left_out"] == 1


def test_remove_leaves_nothing_and_json_tells_each_step(labels, server, key_file):
    result = _run(labels, server.base_url, key_file, "--remove", "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert server.devices == {}
    assert document["passed"] is True
    assert [step["action"] for step in document["journeys"][2]["steps"]] == [
        "scan",
        "register",
        "list",
        "remove",
        "list",
    ]
    assert document["unread"] == []


def test_single_pictures_may_be_given_instead_of_a_folder(labels, server, key_file):
    result = _run(labels / "SIM-000002.png", server.base_url, key_file)
    assert result.exit_code == 0
    assert set(server.devices) == {"d-SIM-000002"}


def test_a_failed_step_ends_with_code_1_and_a_line_that_names_it(labels, server, key_file):
    server.first_answers = [(500, {}, b'{"error":"boom"}')]
    result = _run(labels, server.base_url, key_file)
    assert result.exit_code == 1
    assert "failed: SIM-000001: scan: answered server error (500 boom); expected product shown" in result.stderr
    assert "2 of 3 labels went the whole way" in result.stdout


def test_a_label_that_does_not_read_ends_with_code_1_and_the_others_are_onboarded(labels, server, key_file):
    (labels / "SIM-000002.png").write_bytes(b"\x89PNG")
    result = _run(labels, server.base_url, key_file, "--json")
    assert result.exit_code == 1
    assert "unread: " in result.stderr
    assert [Path(entry["source"]).name for entry in json.loads(result.stdout)["unread"]] == ["SIM-000002.png"]
    assert len(server.devices) == 2


def test_wrong_keys_end_with_code_2_after_one_request_and_name_the_options(labels, server, tmp_path):
    (tmp_path / "wrong").write_text("msk_wrong")
    result = _run(labels, server.base_url, tmp_path / "wrong")
    assert result.exit_code == 2
    assert "check --api-key and --secret-key-file, or --token-file; 2 label(s) not begun" in result.stderr


def test_a_service_that_is_down_ends_with_code_5_and_names_the_option(labels, key_file):
    with socket.socket() as bound_and_deaf:
        bound_and_deaf.bind(("127.0.0.1", 0))
        result = _run(labels, f"http://127.0.0.1:{bound_and_deaf.getsockname()[1]}", key_file)
    assert result.exit_code == 5
    assert "base_url" in result.stderr
    assert len(result.stderr.strip().splitlines()) <= 3  # progress twice at most, and one clear line


def test_a_captive_portal_ends_with_code_5(labels, server, key_file):
    server.first_answers = [(200, {"Content-Type": "text/html"}, b"<html>Welcome to the hotel</html>")] * 3
    result = _run(labels, server.base_url, key_file)
    assert result.exit_code == 5
    assert server.devices == {}


def test_a_quota_beyond_the_patience_is_a_failed_step(labels, server, key_file):
    server.first_answers = [(429, {"Retry-After": "60"}, b'{"error":"rate_limited"}')]
    result = _run(labels / "SIM-000001.png", server.base_url, key_file, "--max-wait-s", "1")
    assert result.exit_code == 1
    assert "--max-wait-s 1" in result.stderr


@pytest.mark.parametrize("content", [None, "", "  \n", b"\xff\xfe"])
def test_a_secret_key_file_that_gives_no_key_ends_with_code_2(labels, tmp_path, content):
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    result = _run(labels, "http://127.0.0.1:9", path)
    assert result.exit_code == 2
    assert "--secret-key-file" in result.stderr


@pytest.mark.parametrize("base_url", ["not a url", "ftp://127.0.0.1", "", "http://"])
def test_a_base_url_that_is_none_ends_with_code_2(labels, key_file, base_url):
    result = _run(labels, base_url, key_file)
    assert result.exit_code == 2
    assert result.stderr.strip()


def test_a_missing_folder_ends_with_code_2_and_the_fix(tmp_path, key_file):
    result = _run(tmp_path / "nowhere", "http://127.0.0.1:9", key_file)
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
