"""The HTTP front over TLS: who may be trusted, what is refused at the start, and a certificate that is renewed."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

import httpx
import pytest

from agent.errors import ConfigurationError
from gateway.certificates import make_certificates
from gateway.http.front import HttpFront, HttpSettings
from tests.certificates import Authority
from tests.fake_backend import FakeBackend, FakeTokens


def front(certificate, key, **settings):
    return HttpFront(
        HttpSettings(port=0, certificate=certificate, private_key=key, **settings), FakeBackend(), FakeTokens(t="d1")
    )


def get(base_url, authority):
    context = ssl.create_default_context(cafile=authority)
    headers = {"authorization": "Bearer t"}
    with httpx.Client(verify=context, trust_env=False, headers=headers) as http:
        return http.get(f"{base_url}/devices/d1/commands").status_code


def serial(base_url, authority):
    host, port = base_url.removeprefix("https://").split(":")
    return ssl.get_server_certificate((host, int(port)), ca_certs=authority)


def test_a_device_that_trusts_the_authority_gets_through_and_a_renewed_certificate_needs_no_restart(tmp_path):
    files = make_certificates(tmp_path, ["127.0.0.1"], datetime.now(UTC))
    running = front(files.certificate, files.private_key)
    running.start()
    try:
        assert get(running.base_url, files.authority) == 200
        before = serial(running.base_url, files.authority)
        make_certificates(tmp_path, ["127.0.0.1"], datetime.now(UTC), renew=True)
        running.reload()
        assert serial(running.base_url, files.authority) != before
        assert get(running.base_url, files.authority) == 200
        files.certificate.write_text("garbage")
        with pytest.raises(ConfigurationError, match="do not make a certificate"):
            running.reload()
        assert get(running.base_url, files.authority) == 200, "the one from before stays"
    finally:
        assert running.stop(60)


def test_an_expired_certificate_is_told_and_devices_refuse_it(tmp_path, caplog):
    authority = Authority(tmp_path)
    pair = authority.issue("gw", expired=True)
    running = front(pair.certificate, pair.key)
    running.start()
    try:
        assert "expired on" in caplog.text
        assert "expired on" in running.status().detail
        with pytest.raises(httpx.ConnectError, match="expired"):
            get(running.base_url, authority.certificate)
    finally:
        assert running.stop(60)


def test_a_device_that_trusts_another_authority_does_not_talk_to_it(tmp_path):
    files = make_certificates(tmp_path / "a", ["127.0.0.1"], datetime.now(UTC))
    other = make_certificates(tmp_path / "b", ["127.0.0.1"], datetime.now(UTC))
    running = front(files.certificate, files.private_key)
    running.start()
    try:
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            get(running.base_url, other.authority)
    finally:
        assert running.stop(60)


def test_files_that_make_no_certificate_are_refused_at_the_start(tmp_path):
    files = make_certificates(tmp_path / "a", ["gw"], datetime.now(UTC))
    other = make_certificates(tmp_path / "b", ["gw"], datetime.now(UTC))
    with pytest.raises(ConfigurationError, match="no such file"):
        front(tmp_path / "missing.pem", files.private_key)
    with pytest.raises(ConfigurationError, match="do not make a certificate"):
        front(files.certificate, other.private_key)
    with pytest.raises(ConfigurationError, match="do not make a certificate"):
        front(files.private_key, None)


def test_a_port_in_use_is_told_with_the_fix(tmp_path):
    first = front(None, None)
    first.start()
    port = int(first.base_url.rsplit(":", 1)[1])
    try:
        second = HttpFront(HttpSettings(port=port), FakeBackend(), FakeTokens())
        with pytest.raises(OSError, match="in use: stop what listens there, or set another http.port"):
            second.start()
    finally:
        assert first.stop(60)
