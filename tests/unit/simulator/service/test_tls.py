"""Tests for a service with a certificate: https for others, a plain address for the programs of this machine."""

from __future__ import annotations

import socket
import ssl

import httpx
import pytest

from agent.errors import ConfigurationError
from simulator.console import links
from simulator.console.app import make_console
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from simulator.service.tls import server_context
from tests.certificates import Authority, Pair

pytestmark = pytest.mark.one_database


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.issue("server")


def secure(pair: Pair, **settings: object) -> ServiceConfig:
    return ServiceConfig(tls_certificate=pair.certificate, tls_key=pair.key, **settings)  # type: ignore[arg-type]


def client_of(url: str, authority: Authority) -> httpx.Client:
    context = ssl.create_default_context(cafile=authority.certificate)
    return httpx.Client(base_url=url, verify=context, trust_env=False, timeout=60)


def test_others_reach_it_by_https_and_this_machine_in_plain_too(authority: Authority, pair: Pair) -> None:
    with RunningService(secure(pair)) as service, client_of(service.public_url, authority) as others:
        keys = {"x-api-key": service.api_key, "x-secret-key": service.secret_key.reveal()}
        made = others.post("/products", json={"name": "Lamp"}, headers=keys)
        assert (made.status_code, service.public_url[:8], service.base_url[:7]) == (201, "https://", "http://")
        listed = httpx.get(f"{service.base_url}/products", headers=keys, trust_env=False, timeout=60).json()["data"]
        assert [one["name"] for one in listed] == ["Lamp"]
        assert others.get("/.well-known/oauth-authorization-server").json()["issuer"] == service.public_url


def test_a_session_of_the_console_is_secure_where_the_browser_came_over_tls(authority: Authority, pair: Pair) -> None:
    with (
        RunningService(secure(pair), make_addition=make_console) as service,
        client_of(service.public_url, authority) as others,
    ):
        assert service.addition is not None
        over_tls = others.get(service.addition.entry_path()).headers["set-cookie"]
        plain = httpx.get(service.base_url + service.addition.entry_path(), trust_env=False, timeout=60)
        assert "; Secure" in over_tls
        assert "; Secure" not in plain.headers["set-cookie"]


def test_links_for_other_machines_lead_to_https(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "network_addresses", lambda: ["192.168.1.20"])
    config = secure(pair, host="0.0.0.0")
    with RunningService(config, make_addition=make_console) as service:
        link = httpx.post(f"{service.base_url}/_emulator/console-links", trust_env=False, timeout=60).json()
        assert [address.partition("192.168.1.20")[0] for address in link["network_urls"]] == ["https://"]


@pytest.mark.parametrize(
    ("certificate", "key", "words"),
    [
        ("missing.pem", "server.key", "--tls-certificate: there is no file"),
        ("server.pem", "missing.key", "--tls-key: there is no file"),
        ("server.pem", "other.key", "are no certificate with its unencrypted key"),
        ("server.key", None, "are no certificate with its unencrypted key"),
    ],
)
def test_files_that_are_no_certificate_name_the_option_and_the_way_to_one(
    authority: Authority, pair: Pair, certificate: str, key: str | None, words: str
) -> None:
    authority.issue("other")
    folder = pair.certificate.parent
    with pytest.raises(ConfigurationError, match=words) as refused:
        server_context(folder / certificate, None if key is None else folder / key)
    assert "device-gateway certificates" in str(refused.value)


def test_a_service_that_cannot_use_its_certificate_leaves_no_port_open(pair: Pair) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(ConfigurationError, match="--tls-certificate"):
        RunningService(ServiceConfig(port=port, tls_certificate=pair.key))
    socket.create_server(("127.0.0.1", port)).close()


def test_a_key_without_a_certificate_is_refused(pair: Pair) -> None:
    with pytest.raises(ConfigurationError, match="--tls-key needs --tls-certificate beside it"):
        ServiceConfig(tls_key=pair.key)
