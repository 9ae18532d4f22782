"""Control paths serve programs on this machine, and neither web pages nor what comes through a proxy."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import httpx
import pytest

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from simulator.service.config import ServiceConfig
from tests.support.service_running import Bench, running

TOKEN = "0123456789abcdef"
RESET = "/_emulator/reset"
SEED = b"products:\n  - name: Door controller\n"


@pytest.fixture
def bench():
    with running() as bench:
        bench.product()
        yield bench


def reset(bench: Bench, **headers: str) -> httpx.Response:
    return bench.http.post(RESET, headers={name.replace("_", "-"): value for name, value in headers.items()})


def test_a_program_on_this_machine_and_the_services_own_page_need_nothing(bench: Bench) -> None:
    assert reset(bench).status_code == 204
    port = bench.service.base_url.rsplit(":", 1)[1]
    for host in ("localhost", "[::1]"):
        assert reset(bench, host=f"{host}:{port}").status_code == 204
    assert reset(bench, origin=bench.service.base_url, sec_fetch_site="same-origin").status_code == 204


@pytest.mark.parametrize(
    ("error", "headers"),
    [
        ("foreign_host", {"host": "rebound.example"}),
        ("foreign_host", {"host": "127.0.0.1.rebound.example:8080"}),
        ("foreign_host", {"host": "10.0.0.7"}),
        ("foreign_origin", {"origin": "https://page.example"}),
        ("foreign_origin", {"origin": "null"}),
        ("foreign_origin", {"origin": "http://localhost:1"}),
        ("foreign_origin", {"sec_fetch_site": "cross-site"}),
        ("control_token_required", {"x_forwarded_for": "203.0.113.9"}),
        ("control_token_required", {"forwarded": "for=203.0.113.9"}),
        ("control_token_required", {"x_real_ip": "203.0.113.9"}),
    ],
)
def test_what_a_browser_or_a_proxy_brings_is_refused(bench: Bench, error: str, headers: dict[str, str]) -> None:
    answer = reset(bench, **headers)
    assert (answer.status_code, answer.json()["error"]) == (403, error)
    assert len(bench.http.get("/products").json()["data"]) == 1


def test_a_body_says_that_it_is_json_or_yaml(bench: Bench) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None):
        headers = {} if kind is None else {"content-type": kind}
        for path, body in (("/_emulator/seed", SEED), ("/_emulator/clock/advance", b'{"seconds": 60}')):
            answer = bench.http.post(path, content=body, headers=headers)
            assert (answer.status_code, answer.json()["error"]) == (415, "unsupported_media_type")


def test_the_true_answers_behind_a_variant_are_for_such_programs_too(bench: Bench) -> None:
    key = bench.service.api_key
    assert bench.http.put(f"/_emulator/accounts/{key}/variant", json={"base": "plain"}).status_code == 200
    bypass = {"x-emulator-variant": "complete"}
    assert bench.http.get("/products", headers=bypass).status_code == 200
    assert bench.http.get("/products", headers={**bypass, "host": "rebound.example"}).status_code == 403


def test_with_a_token_every_caller_sends_it_and_a_proxy_may_pass_requests_on() -> None:
    with running(control_token=Secret(TOKEN)) as bench:
        assert reset(bench).json()["error"] == "control_token_required"
        assert reset(bench, x_emulator_token="f" * 16).status_code == 403
        assert reset(bench, x_emulator_token=TOKEN).status_code == 204
        answer = reset(bench, x_emulator_token=TOKEN, x_forwarded_for="203.0.113.9", host="devices.example.com")
        assert answer.status_code == 204
        assert reset(bench, x_emulator_token=TOKEN, origin="https://page.example").status_code == 403
        assert bench.http.get("/_emulator/health").status_code == 200, "health is for whoever watches the process"


def test_a_short_token_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="control_token must be 16 to 256"):
        ServiceConfig(control_token=Secret("short"))


def test_the_data_folder_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    before = os.umask(0)
    try:
        with running(data_dir=folder) as bench:
            bench.product()
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert modes
    assert set(modes.values()) == {0o600}, modes
