"""What is said of a server whose certificate is refused, with real certificates over a real socket."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agent.errors import TransportError
from simulator.wire.client import ServiceClient
from tests.certificates import Authority, Pair


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, *_: object) -> None:
        """Nothing."""


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A handshake that the client breaks off is what these tests are about."""


@contextmanager
def serving(pair: Pair) -> Iterator[str]:
    """A server with this certificate; its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def refusal(authority: Authority, pair: Pair, *, is_trusted: bool = True) -> str:
    ca_file = authority.certificate if is_trusted else None
    with (
        serving(pair) as url,
        ServiceClient(url, None, ca_file=ca_file) as client,
        pytest.raises(TransportError) as caught,
    ):
        list(client.devices())
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"the certificate of {url} is refused: ")
    return text


def test_a_good_certificate_is_taken(authority):
    ca_file = authority.certificate
    with serving(authority.issue("good")) as url, ServiceClient(url, None, ca_file=ca_file) as client:
        assert list(client.devices()) == []


def test_another_host_name_speaks_of_base_url_and_not_of_clock_or_authority(authority):
    text = refusal(authority, authority.issue("other", host="other.example"))
    assert "base_url" in text
    assert not [word for word in ("clock", "ca_file", "ca-file") if word in text]


def test_an_unknown_authority_names_service_ca_file_and_not_the_clock(authority):
    text = refusal(authority, authority.issue("unknown"), is_trusted=False)
    assert "service.ca_file" in text
    assert "clock" not in text


def test_an_expired_certificate_is_to_be_renewed(authority):
    text = refusal(authority, authority.issue("over", expired=True))
    assert "expired: renew it on the server" in text
    assert "ca_file" not in text


def test_a_certificate_that_is_not_valid_yet_speaks_of_the_clock(authority):
    text = refusal(authority, authority.issue("early", not_yet=True))
    assert "not yet valid: set this machine's clock" in text
    assert "ca_file" not in text
