"""``broker-config`` and ``certificates``: what they write, keep and refuse."""

from __future__ import annotations

import stat
import time
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from click.testing import CliRunner
from cryptography import x509

from gateway.certificates import certificate_trouble, make_certificates
from gateway.cli import device_gateway

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Site:
    def __init__(self, folder):
        self.folder = folder
        self.config = folder / "config.yaml"
        (folder / "state").mkdir()
        values = {"service": {"base_url": "http://127.0.0.1:1"}, "state_dir": str(folder / "state")}
        values["auth"] = {"api_key_file": "/nowhere", "secret_key_file": "/nowhere"}  # not needed here
        self.values = values
        self.config.write_text(yaml.safe_dump(values))
        self.conf = folder / "mosquitto" / "conf.d" / "device-gateway.conf"
        self.directory = folder / "mosquitto" / "device-gateway"

    def speak_tls(self):
        self.config.write_text(yaml.safe_dump({**self.values, "mqtt": {"tls": True, "port": 8883}}))

    def run(self, *words, code=0):
        done = CliRunner().invoke(device_gateway, [*map(str, words)])
        assert done.exit_code == code, done.output
        return done

    def devices(self, *words):
        return self.run("devices", *words, "--config", self.config)

    def broker_config(self, *words, code=0):
        places = ["--conf", self.conf, "--dir", self.directory]
        return self.run("broker-config", "--config", self.config, *places, *words, code=code)

    def users(self):
        return {line.split(":")[0] for line in (self.directory / "passwords").read_text().splitlines()}


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_the_first_run_writes_everything_and_asks_for_a_restart(site):
    site.devices("add", "--no-check", "--device-id", "d1")
    site.run("certificates", "--host", "gw.example.com", "--dir", site.folder / "tls")
    site.speak_tls()
    done = site.broker_config()
    assert "systemctl restart mosquitto" in done.stdout
    assert site.users() == {"d1", "gateway"}
    conf = site.conf.read_text()
    for line in ("listener 8883", "allow_anonymous false", "use_username_as_clientid true", "set_tcp_nodelay true"):
        assert line in conf.splitlines()
    assert not stat.S_IMODE((site.directory / "passwords").stat().st_mode) & 0o037
    assert not stat.S_IMODE((site.directory / "server.key").stat().st_mode) & 0o037
    assert stat.S_IMODE((site.folder / "mqtt_password").stat().st_mode) == 0o600
    assert not (site.directory / "ca.key").exists()


def test_what_cannot_be_is_refused_with_the_fix(site):
    site.speak_tls()
    assert "--host NAME" in site.broker_config(code=2).stderr
    assert not site.conf.exists()
    site.config.write_text(yaml.safe_dump(site.values))
    site.devices("add", "--no-check", "--device-id", "gateway")
    assert "is a device's id, too" in site.broker_config(code=2).stderr
    (site.folder / "mqtt_password").write_text("\n")
    assert "is empty" in site.broker_config(code=2).stderr


def test_certificates_are_copied_for_the_broker(site):
    files = make_certificates(site.folder / "tls", ["gw"], datetime.now(UTC))
    site.speak_tls()
    site.broker_config()
    assert (site.directory / "server.pem").read_bytes() == files.certificate.read_bytes()
    make_certificates(site.folder / "tls", ["gw", "gw2"], datetime.now(UTC))
    assert "systemctl reload mosquitto" in site.broker_config().stdout
    assert (site.directory / "server.pem").read_bytes() == files.certificate.read_bytes()


# --- certificates -------------------------------------------------------------------------------------------------


def test_the_private_keys_are_for_their_owner_alone(tmp_path):
    make_certificates(tmp_path / "tls", ["gw"], NOW)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "tls").iterdir()}
    assert modes == {"ca.pem": 0o644, "ca.key": 0o600, "server.pem": 0o644, "server.key": 0o600}


def test_what_is_good_is_kept_and_the_authority_always(tmp_path):
    first = make_certificates(tmp_path, ["gw"], NOW)
    authority, certificate = first.authority.read_bytes(), first.certificate.read_bytes()
    make_certificates(tmp_path, ["gw"], NOW + timedelta(days=300))
    assert first.certificate.read_bytes() == certificate
    for again in (
        lambda: make_certificates(tmp_path, ["gw"], NOW + timedelta(days=370)),
        lambda: make_certificates(tmp_path, ["gw", "gw2"], NOW + timedelta(days=370)),
    ):
        again()
        assert first.certificate.read_bytes() != certificate
        certificate = first.certificate.read_bytes()
    assert first.authority.read_bytes() == authority


@pytest.mark.parametrize("host", ["", "https://gw", "gw:8883", "a b", "-.", "gw/x"])
def test_what_is_no_name_of_a_host_is_refused(tmp_path, host):
    done = CliRunner().invoke(device_gateway, ["certificates", "--host", host, "--dir", str(tmp_path / "t")])
    assert done.exit_code == 2
    assert "neither a host name nor an IP address" in done.stderr


def test_half_an_authority_is_refused_instead_of_made_anew(tmp_path):
    files = make_certificates(tmp_path, ["gw"], NOW)
    for content, said in ((None, "ca.key is missing; restore it"), ("garbage", "cannot be read")):
        (tmp_path / "ca.key").unlink()
        if content is not None:
            (tmp_path / "ca.key").write_text(content)
        done = CliRunner().invoke(device_gateway, ["certificates", "--host", "gw", "--dir", str(tmp_path)])
        assert done.exit_code == 2
        assert said in done.stderr
        (tmp_path / "ca.key").touch()
    assert files.authority.exists()


def test_a_certificate_near_its_end_is_told(tmp_path):
    path = make_certificates(tmp_path, ["gw"], NOW).certificate
    ends = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp()
    assert certificate_trouble(path, ends - 15 * 86400) == ""
    assert "expires on" in certificate_trouble(path, ends - 13 * 86400)
    assert "expired on" in certificate_trouble(path, ends + 1)
    assert "clock" in certificate_trouble(path, NOW.timestamp() - 2 * 86400)
    assert "cannot be read" in certificate_trouble(tmp_path / "ca.key", time.time())
