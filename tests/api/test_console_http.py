"""The console over HTTP: who may have it, what its pages may do in a browser, and what a folder of runs may hold."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.client
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from agent.errors import ConfigurationError
from simulator.console.app import ConsoleSettings, make_console
from simulator.labels.symbol import png_of
from simulator.service.app import build_app
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from simulator.service.service import Service
from tests.support.service_running import Bench, client

RECORD = {
    "name": "smoke", "target": "http://127.0.0.1:1", "devices": 20, "began_at": "2026-01-01T00:00:00Z",
    "ended_at": "2026-01-01T00:01:00Z", "duration_s": 60.0, "verdict": {"word": "passed", "sentences": ["all held"]},
    "thresholds": [{"expression": "errors == 0", "held": True, "observed": 0, "unit": "", "judged": True}],
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def bench(runs: Path) -> Iterator[Bench]:
    config = ServiceConfig(console=True, runs_dir=runs, rate_limit=5, log_level="warning")
    with RunningService(config) as service, client(service) as http:
        yield Bench(service, None, http)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def page(bench: Bench) -> Iterator[httpx.Client]:
    """What a page of the console sends: the token, and no keys."""
    token = (bench.service.console_url or "").partition("#token=")[2]
    headers = {"x-emulator-token": token, "x-emulator-account": bench.service.api_key}
    with httpx.Client(base_url=bench.service.base_url, headers=headers, trust_env=False, timeout=60) as http:
        yield http


def a_run(runs: Path, name: str, **members: object) -> Path:
    folder = runs / name
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({**RECORD, **members}))
    return folder


def as_it_is(bench: Bench, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Status and type of the answer for an address that no client has tidied up."""
    place = urlsplit(bench.service.base_url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.headers.get_content_type()


# --- the pages ---


def test_pages_need_nothing_hold_no_secret_and_run_nothing_but_their_own_scripts(bench: Bench) -> None:
    for path in ("", "main.js", "console.css", "icon.svg", "vendor/uPlot.iife.min.js", "vendor/htm-preact.module.js"):
        answer = httpx.get(f"{bench.service.base_url}/console/{path}", trust_env=False)
        assert answer.status_code == 200, path
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert (bench.service.console_url or "").partition("#token=")[2] not in answer.text
        assert "set-cookie" not in answer.headers
    moved = httpx.get(f"{bench.service.base_url}/console", trust_env=False, headers=dict(bench.http.headers))
    assert moved.headers["location"] == "/console/"


def test_the_frame_of_reports_is_an_origin_of_its_own(bench: Bench) -> None:
    policy = httpx.get(f"{bench.service.base_url}/console/report.html").headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none';")
    assert "allow-same-origin" not in policy


@pytest.mark.parametrize(
    "path",
    [
        "../pyproject.toml", "..%2f..%2fpyproject.toml", "%2e%2e/app.py", "....//app.py", "vendor/../../app.py",
        "/etc/passwd", "%2fetc%2fpasswd", "static/main.js", "main.js%00.html", "vendor", "vendor/", "..\\app.py",
        "main.js/", "app.py", "./main.js",
    ],
)  # fmt: skip
def test_no_address_leads_out_of_the_pages_files(bench: Bench, path: str) -> None:
    status, kind = as_it_is(bench, f"/console/{path}")
    assert status in {400, 401, 404}
    assert kind == "application/json"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost.evil", "0"]
)
def test_a_name_that_was_made_to_lead_here_gets_no_page(bench: Bench, host: str) -> None:
    answer = httpx.get(f"{bench.service.base_url}/console/", headers={"host": host}, trust_env=False)
    assert answer.status_code in {400, 403}
    assert "<script" not in answer.text


def test_a_visitor_from_the_network_gets_no_page(bench: Bench) -> None:
    config = ServiceConfig(console=True)
    service = Service(config)
    try:
        app = build_app(service, console=make_console(service))
        for address, status in (("192.0.2.7", 403), ("127.0.0.1", 200), ("::1", 200)):
            assert _ask(app, address, "/console/", {}) == status
        token = {"x-emulator-token": service.console_token.reveal()} if service.console_token else {}
        assert _ask(app, "127.0.0.1", "/_emulator/runs", token) == 200
        assert _ask(app, "192.0.2.7", "/_emulator/runs", token) == 401
        assert _ask(app, "192.0.2.7", "/devices", {**token, "x-emulator-account": "mk_x"}) == 401
    finally:
        service.close()


def _ask(app: object, client_address: str, path: str, headers: dict[str, str]) -> int:
    async def ask() -> int:
        transport = httpx.ASGITransport(app, client=(client_address, 50000))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as http:
            return (await http.get(path, headers=headers)).status_code

    return asyncio.run(ask())


# --- the token ---


def test_the_token_asks_for_an_account_without_keys_uncounted_and_unlogged(bench: Bench, page: httpx.Client) -> None:
    bench.http.delete("/_emulator/requests")
    assert {page.get("/devices").status_code for _ in range(12)} == {200}  # the limit is 5 in a minute
    assert page.get("/_emulator/requests").json()["data"] == []
    assert page.get("/devices", headers={"x-emulator-account": "mk_nobody"}).json()["error"] == "account_not_found"


def test_the_console_opens_whatever_fault_the_service_has(bench: Bench, page: httpx.Client) -> None:
    fault = page.post("/_emulator/faults", json={"effect": {"answer": 503}}).json()["fault_id"]
    try:
        assert httpx.get(f"{bench.service.base_url}/devices", trust_env=False).status_code == 503
        assert httpx.get(f"{bench.service.base_url}/console/main.js", trust_env=False).status_code == 200
        assert page.get("/devices").status_code == 200
    finally:
        page.delete(f"/_emulator/faults/{fault}")


def test_another_token_is_none(page: httpx.Client) -> None:
    for token in ("", "x", "0" * 32, "Bearer"):
        assert page.get("/devices", headers={"x-emulator-token": token}).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"}, {"origin": "null"}, {"origin": "http://localhost:1"},
        {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"},
    ],
)  # fmt: skip
def test_pages_of_other_origins_change_nothing_even_with_the_token(page: httpx.Client, headers: dict[str, str]) -> None:
    for path in ("/_emulator/reset", "/_emulator/runs", "/products"):
        answer = page.post(path, json={}, headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (403, "foreign_origin")


def test_a_service_without_a_console_has_none() -> None:
    with RunningService(ServiceConfig()) as service, client(service) as http:
        assert service.console_url is None
        assert http.get("/console/").status_code == 404
        assert http.get("/_emulator/runs").status_code == 404


# --- runs ---


def test_runs_are_listed_by_when_they_began_and_not_by_their_files_times(runs: Path, page: httpx.Client) -> None:
    for name, year in (("b-old", 2024), ("a-new", 2026), ("c-older", 2023)):
        a_run(runs, name, began_at=f"{year}-01-01T00:00:00Z")
    os.utime(runs / "c-older" / "run.json")
    found = page.get("/_emulator/runs").json()
    order = [run["id"] for run in found["data"] if run["id"] in {"b-old", "a-new", "c-older"}]
    assert order == ["a-new", "b-old", "c-older"]
    assert (found["folder"], found["scenarios"]) == (str(runs), None)
    shown = page.get("/_emulator/runs/a-new").json()
    assert (shown["word"], shown["sentences"], shown["devices"]) == ("passed", ["all held"], 20)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "unreadable"), (b"{", "unreadable"), (b"[" * 100_000, "unreadable"), (bytes(range(256)), "unreadable"),
        (b'{"devices": "many"}', "unreadable"), (b'{"name": "x", "duration_s": 1e999}', "no end"),
        (json.dumps({**RECORD, "ended_at": ""}).encode(), "no end"),
        (json.dumps({**RECORD, "name": "x" * 100_000}).encode(), "passed"),
    ],
)  # fmt: skip
def test_a_run_that_cannot_be_read_is_shown_as_that(runs: Path, page: httpx.Client, content: bytes, word: str) -> None:
    (a_run(runs, "odd") / "run.json").write_bytes(content)
    try:
        shown = page.get("/_emulator/runs/odd")
        assert shown.status_code == 200
        assert shown.json()["word"] == word
        assert len(shown.text) < 10_000
        assert page.get("/_emulator/runs").status_code == 200
    finally:
        (runs / "odd" / "run.json").unlink()
        (runs / "odd").rmdir()


def test_links_and_pipes_of_a_folder_lead_nowhere(runs: Path, page: httpx.Client, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"secret": 1}')
    folder = a_run(runs, "links")
    (folder / "leak.json").symlink_to(secret)
    (folder / "progress.jsonl").symlink_to(secret)
    os.mkfifo(folder / "pipe.json")
    (runs / "outside").symlink_to(tmp_path)
    (runs / "linked").mkdir()
    (runs / "linked" / "run.json").symlink_to("/dev/zero")
    assert page.get("/_emulator/runs/links").json()["files"] == ["run.json"]
    for name in ("leak.json", "pipe.json", "progress.jsonl"):
        assert page.get(f"/_emulator/runs/links/files/{name}").json()["error"] == "file_not_found"
    assert page.get("/_emulator/runs/links/progress").json()["error"] == "file_refused"
    assert page.get("/_emulator/runs/outside").json()["error"] == "run_not_found"
    assert page.get("/_emulator/runs/linked").json()["word"] == "unreadable"


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", "..%2f..", "links%2f..", ".hidden", "%00", "a%0ab", "x" * 300, "..\\x"]
)
def test_no_run_and_no_file_is_found_outside_of_the_folder(
    bench: Bench, page: httpx.Client, runs: Path, name: str
) -> None:
    token = {"X-Emulator-Token": page.headers["x-emulator-token"]}
    if not (runs / "plain").exists():
        a_run(runs, "plain")
    for path in (
        f"/_emulator/runs/{name}",
        f"/_emulator/runs/plain/files/{name}",
        f"/_emulator/runs/{name}/files/run.json",
    ):
        assert as_it_is(bench, path, token)[0] in {400, 404}, path


def test_a_file_of_a_run_is_text_whatever_it_holds(runs: Path, page: httpx.Client) -> None:
    (a_run(runs, "files") / "report.html").write_text("<script>alert(1)</script>")
    answer = page.get("/_emulator/runs/files/files/report.html")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("sandbox;")


def test_progress_is_read_on_from_where_it_was(runs: Path, page: httpx.Client) -> None:
    file = a_run(runs, "live") / "progress.jsonl"
    file.write_text('{"event": "run"}\n{"event": "second", "second": 0}\nno json\n[1]\n{"event": "half')
    first = page.get("/_emulator/runs/live/progress").json()
    assert [line["event"] for line in first["lines"]] == ["run", "second"]
    with file.open("a") as more:
        more.write('"}\n')
    then = page.get("/_emulator/runs/live/progress", params={"after": first["place"]}).json()
    assert [line["event"] for line in then["lines"]] == ["half"]
    file.write_text('{"event": "run"}\n' + '{"event": "second"}\n' * 100_000)
    late = page.get("/_emulator/runs/live/progress").json()
    assert late["lines"][0]["event"] == "run"
    assert 1 < len(late["lines"]) < 100_000
    assert late["place"] == file.stat().st_size


def test_no_run_is_started_without_a_folder_of_scenarios_nor_stopped_that_is_not_here(
    runs: Path, page: httpx.Client
) -> None:
    assert page.post("/_emulator/runs", json={"scenario": "x.yaml"}).json()["error"] == "no_scenarios"
    a_run(runs, "elsewhere")
    assert page.post("/_emulator/runs/elsewhere/stop", json={}).json()["error"] == "run_not_started_here"


def test_folders_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    a_run(tmp_path, "one")
    with RunningService(ServiceConfig()) as service:
        for settings, word in (
            (ConsoleSettings(runs=tmp_path / "one"), "is a run itself"),
            (ConsoleSettings(scenarios=tmp_path / "none"), "is no folder"),
        ):
            with pytest.raises(ConfigurationError, match=word):
                service.do(functools.partial(make_console, settings=settings))


# --- labels ---


def test_labels_are_made_and_read_back_signed_where_the_product_signs(bench: Bench, page: httpx.Client) -> None:
    key = "hmac-sha256:" + "A" * 43
    product = page.post("/products", json={"name": "Signed", "label_key": key}).json()["product_id"]
    made = page.post("/_emulator/labels", json={"product_id": product, "identifiers": ["SN-1", "SN-2"]}).json()["data"]
    assert [one["device_identifier"] for one in made] == ["SN-1", "SN-2"]
    scanned = page.post("/onboarding/scan-qr", json={"qr_data": made[0]["text"]})
    assert scanned.json()["device_identifier"] == "SN-1"
    headers = {"content-type": "application/octet-stream"}
    read = page.post("/_emulator/labels/read", content=png_of(made[1]["text"]), headers=headers)
    assert read.json() == {"codes": [made[1]["text"]]}
    assert page.post("/_emulator/labels", json={"product_id": "x", "identifiers": ["a"]}).status_code == 404
    assert page.post("/_emulator/labels", json={"product_id": product, "identifiers": ["a"] * 101}).status_code == 400


def test_a_picture_says_that_it_is_one_and_is_not_too_large(page: httpx.Client) -> None:
    headers = {"content-type": "application/octet-stream"}
    assert page.post("/_emulator/labels/read", content=b"x", headers={"content-type": "text/html"}).status_code == 415
    assert page.post("/_emulator/labels/read", content=b"x" * 25_000_001, headers=headers).status_code == 413
