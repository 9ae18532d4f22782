"""What a browser's session may do, and what nobody may without one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from simulator.console.app import make_console
from simulator.console.pages import PAGES
from simulator.console.static_files import read_files
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.console_pages import ConsoleBench, running_console


@pytest.fixture(scope="module")
def console() -> Iterator[ConsoleBench]:
    with running_console(rate_limit=1000) as bench:
        yield bench


class Visitor:
    """A browser: a client with cookies and without keys."""

    def __init__(self, console: ConsoleBench) -> None:
        self.http = httpx.Client(base_url=console.service.base_url, trust_env=False)
        self.console = console
        self.csrf = ""

    def enter(self) -> httpx.Response:
        answer = self.http.get(self.console.link(), follow_redirects=True)
        self.csrf = re.search(r'name="console-csrf" content="([^"]+)"', answer.text)[1]
        return answer

    def headers(self, **more: str) -> dict[str, str]:
        named = {name.replace("_", "-"): value for name, value in more.items()}
        return {"x-console": self.csrf, "x-console-account": self.console.service.api_key, **named}


@pytest.fixture
def visitor(console: ConsoleBench) -> Iterator[Visitor]:
    visitor = Visitor(console)
    yield visitor
    visitor.http.close()


# --- getting in -------------------------------------------------------------------------------------------------


def test_a_link_leads_to_the_devices_with_a_session_and_leaves_the_address(visitor, console):
    answer = visitor.http.get(console.link())
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    shell = visitor.http.get("/")
    assert shell.status_code == 200
    assert "<h1>Devices</h1>" in shell.text


def test_without_a_session_every_page_says_how_to_get_a_link(visitor):
    for page in PAGES:
        answer = visitor.http.get(page.path.replace("{", "").replace("}", ""))
        assert answer.status_code == 401
        assert answer.headers["content-type"].startswith("text/html")
        assert "fleet-simulator console" in answer.text


def test_a_link_that_was_used_says_so_to_another_browser_and_nothing_to_the_same(visitor, console):
    link = console.link()
    visitor.http.get(link)
    assert visitor.http.get(link).status_code == 303
    other = httpx.get(link, trust_env=False)
    assert (other.status_code, "This link is used up" in other.text) == (401, True)


def test_a_preview_of_a_link_does_not_use_it_up(visitor, console):
    link = console.link()
    visitor.http.head(link)
    assert visitor.http.get(link).status_code == 303


def test_no_page_has_a_secret_and_each_forbids_foreign_and_inline_scripts(visitor, console):
    shell = visitor.enter()
    assert console.service.secret_key.reveal() not in shell.text
    policy = shell.headers["content-security-policy"]
    assert "unsafe-inline" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert shell.headers["x-content-type-options"] == "nosniff"
    assert shell.headers["referrer-policy"] == "no-referrer"
    assert shell.headers["cache-control"] == "no-store"


def test_no_page_refers_to_another_host(visitor):
    shell = visitor.enter()
    addresses = re.findall(r'(?:href|src)="([^"]+)"', shell.text)
    assert addresses
    assert all(not urlsplit(address).netloc for address in addresses)


# --- with a session ---------------------------------------------------------------------------------------------


def test_with_a_session_the_public_interface_answers_for_the_account_without_keys(visitor, console):
    visitor.enter()
    product_id = console.product()
    listed = visitor.http.get("/products", headers=visitor.headers())
    assert product_id in [one["product_id"] for one in listed.json()["data"]]
    assert "ratelimit" not in listed.headers


def test_an_account_must_be_named_and_must_exist(visitor):
    visitor.enter()
    nameless = visitor.http.get("/products", headers={"x-console": visitor.csrf})
    assert (nameless.status_code, nameless.json()["error"]) == (400, "account_missing")
    unknown = visitor.http.get("/products", headers=visitor.headers(x_console_account="mk_nobody"))
    assert (unknown.status_code, unknown.json()["error"]) == (404, "account_not_found")


@pytest.mark.parametrize(
    ("status", "error", "headers"),
    [
        (401, "session_ended", {"x_console": "wrong"}),
        (401, "session_ended", {"host": "rebound.example"}),
        (403, "foreign_origin", {"origin": "https://page.example"}),
        (403, "foreign_origin", {"origin": "null"}),
        (403, "foreign_origin", {"sec_fetch_site": "cross-site"}),
        (403, "foreign_origin", {"sec_fetch_site": "same-site"}),
    ],
)
@pytest.mark.parametrize("path", ["/products", "/_emulator/clock", "/_emulator/reset"])
def test_a_session_is_taken_from_its_own_pages_alone(visitor, status, error, headers, path):
    visitor.enter()
    method = "POST" if path.endswith("reset") else "GET"
    answer = visitor.http.request(method, path, headers=visitor.headers(**headers))
    assert (answer.status_code, answer.json()["error"]) == (status, error)


def test_the_cookie_alone_changes_nothing(visitor, console):
    visitor.enter()
    refused = visitor.http.post("/products", json={"name": "planted"})
    assert (refused.status_code, refused.json()["error"]) == (401, "missing_credentials")
    sent_out = visitor.http.post("/console/sign-out")
    assert sent_out.status_code == 204
    assert visitor.http.get("/products", headers=visitor.headers()).status_code == 200


def test_signing_out_ends_the_session(visitor):
    visitor.enter()
    visitor.http.post("/console/sign-out", headers=visitor.headers())
    assert visitor.http.get("/products", headers=visitor.headers()).status_code == 401
    assert visitor.http.get("/").status_code == 401


def test_what_cannot_send_the_header_may_read_control_paths_with_the_cookie(visitor):
    visitor.enter()
    with visitor.http.stream("GET", "/_emulator/events", headers={"sec-fetch-site": "same-origin"}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")


def test_requests_of_the_console_meet_no_quota_no_fault_no_profile_and_no_request_log(visitor, console):
    visitor.enter()
    fault = {"match": {}, "effect": {"answer": {"status": 503}}}
    made = console.http.post("/_emulator/faults", json=fault)
    assert made.status_code == 201, made.text
    try:
        assert console.http.get("/products").status_code == 503
        assert visitor.http.get("/products", headers=visitor.headers()).status_code == 200
    finally:
        console.http.delete("/_emulator/faults")
    logged = console.http.get("/_emulator/requests", params={"limit": 1000}).json()["data"]
    assert logged
    assert not [one for one in logged if "x-console" in str(one).lower() or one["path"] == "/"]


# --- files ------------------------------------------------------------------------------------------------------


def test_every_file_is_served_for_ever_and_compressed(visitor):
    shell = visitor.enter()
    base = re.search(r'name="console-static" content="([^"]+)"', shell.text)[1]
    for path, content in read_files().items():
        answer = visitor.http.get(base + path)
        assert (answer.status_code, answer.content) == (200, content), path
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-encoding"] == "gzip"
    plain = visitor.http.get(f"{base}core/main.js", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers


def test_a_file_of_another_version_or_none_is_not_found(visitor):
    shell = visitor.enter()
    base = re.search(r'name="console-static" content="([^"]+)"', shell.text)[1]
    old = base.replace(base.split("/")[-2], "0" * 16)
    for address in (f"{old}core/main.js", f"{base}core/nothing.js", f"{base}core/..%2f..%2fapp.py", f"{base}pages"):
        assert visitor.http.get(address).status_code == 404, address


# --- where there is none ----------------------------------------------------------------------------------------


def test_without_a_console_its_paths_do_not_exist():
    with RunningService(ServiceConfig(log_level="warning")) as service, httpx.Client(trust_env=False) as http:
        assert http.get(service.base_url).json()["error"] == "missing_credentials"
        assert http.post(f"{service.base_url}/_emulator/console-links").status_code == 404


def test_a_service_without_control_paths_has_no_console():
    config = ServiceConfig(control=False, log_level="warning")
    with RunningService(config, make_addition=make_console) as service:
        assert service.addition is None


# --- links ------------------------------------------------------------------------------------------------------


def test_a_further_link_is_made_by_a_program_on_this_machine_and_by_a_session(visitor, console):
    made = console.http.post("/_emulator/console-links")
    assert made.status_code == 201
    assert made.json()["network_urls"] == []  # the service listens on this machine only
    assert httpx.get(made.json()["url"], trust_env=False).status_code == 303
    visitor.enter()
    again = visitor.http.post("/_emulator/console-links", headers=visitor.headers())
    assert again.status_code == 201
    assert again.headers["cache-control"] == "no-store"
