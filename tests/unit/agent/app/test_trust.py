"""Whom the agent trusts: the authorities of the file that is named, for each connection by itself."""

from __future__ import annotations

import http.server
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.adapters.mqtt_session import Tls
from agent.app.client import make_client
from agent.config import AgentConfig, Credentials
from agent.errors import ConfigurationError, TransportError
from agent.wire.secret import Secret
from agent.wire.trust import trust_store
from simulator.login.refreshing import renew
from simulator.login.tokens import TokenSet
from tests.certificates import Authority


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.keys.append(self.headers.get("x-secret-key"))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"[]")

    def log_request(self, *_: object) -> None:
        """Nothing on the terminal."""


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        del request, client_address  # a client that breaks off the handshake is what is tested


@pytest.fixture
def authorities(tmp_path: Path) -> tuple[Authority, Authority]:
    return Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")


@pytest.fixture
def server(authorities: tuple[Authority, Authority]) -> Iterator[_Server]:
    """A server whose certificate the second authority signed."""
    pair = authorities[1].issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server = _Server(("127.0.0.1", 0), _Handler)
    server.keys = []  # type: ignore[attr-defined]
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join(60)
    server.server_close()


def ask(server: _Server, ca_file: Path) -> None:
    config = AgentConfig.model_validate(
        {
            "service": {"base_url": f"https://127.0.0.1:{server.server_port}", "ca_file": str(ca_file)},
            "device": {"device_id": "d1"},
            "auth": {"allow_secret_key_on_device": True},
        }
    )
    assert config.service is not None
    with make_client(config, config.service, Credentials("mk_1", Secret("msk_1")), "0") as client:
        list(client.devices())


def trust_in_environment(monkeypatch: pytest.MonkeyPatch, authority: Authority, folder: Path) -> None:
    """As an administrator would have it: by a file, and by OpenSSL's hashed folder."""
    hashed = folder / "hashed"
    hashed.mkdir()
    name = subprocess.run(
        ["openssl", "x509", "-hash", "-noout", "-in", str(authority.certificate)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    (hashed / f"{name}.0").write_bytes(authority.certificate.read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    monkeypatch.setenv("SSL_CERT_DIR", str(hashed))


def test_nobody_but_the_authorities_of_the_file_is_trusted_whatever_the_environment_says(
    server, authorities, monkeypatch, tmp_path
):
    ours, theirs = authorities
    trust_in_environment(monkeypatch, theirs, tmp_path)
    with pytest.raises(TransportError):
        ask(server, ours.certificate)
    assert server.keys == []
    ask(server, theirs.certificate)
    assert server.keys == ["msk_1"]


def test_tokens_are_renewed_with_the_same_trust(server, authorities, monkeypatch, tmp_path):
    ours, theirs = authorities
    trust_in_environment(monkeypatch, theirs, tmp_path)
    tokens = TokenSet(base_url=f"https://127.0.0.1:{server.server_port}", client_id="c", access_token=Secret("a" * 20))
    with pytest.raises(TransportError):
        renew(tokens, Secret("r" * 20), None, timeout_s=10, ca_file=ours.certificate, transport=None)


def test_the_services_authority_is_not_the_brokers_nor_anybody_elses_in_the_process(server, authorities):
    before = dict(os.environ)
    _, theirs = authorities
    ask(server, theirs.certificate)
    assert dict(os.environ) == before, "what the agent starts inherits nothing"
    subjects = {str(one["subject"]) for one in Tls().context().get_ca_certs()}
    assert not any("Test authority" in one for one in subjects)
    assert len(Tls(theirs.certificate).context().get_ca_certs()) == 1
    assert len(trust_store(theirs.certificate).get_ca_certs()) == 1


def test_a_file_without_a_certificate_is_named(server, tmp_path):
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    with pytest.raises(ConfigurationError, match=r"service.ca_file: .*empty.pem"):
        ask(server, empty)
