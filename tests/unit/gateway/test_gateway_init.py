"""``device-gateway init``: what a new gateway begins with."""

from __future__ import annotations

import socket
import stat
import sys

import pytest
from click.testing import CliRunner

from gateway.cli import device_gateway
from gateway.config import load_gateway
from gateway.initial import KEY_FILES
from tests.support.ports import free_port
from tests.support.processes import run_program


def run(folder, *words, code=0):
    where = ["--dir", str(folder / "etc"), "--state-dir", str(folder / "var")]
    done = CliRunner().invoke(device_gateway, ["init", *where, *words])
    assert done.exit_code == code, done.output
    return done


def put_keys(folder):
    for name, key in (("api_key", "mk_1"), ("secret_key", "msk_1")):
        (folder / "etc" / name).write_text(key)


def test_what_it_writes_is_whole_once_the_keys_are_filled_in_and_is_not_replaced(tmp_path):
    told = run(tmp_path, "--base-url", "https://api.example.com").stdout
    assert "replace what begins with PASTE" in told
    put_keys(tmp_path)
    config = load_gateway(tmp_path / "etc" / "config.yaml", {})
    assert (config.http.host, config.http.certificate, config.mqtt.enabled) == ("127.0.0.1", None, False)
    assert "is there already" in run(tmp_path, "--base-url", "https://other.example.com", code=2).stderr
    run(tmp_path, "--base-url", "https://other.example.com", "--force")
    assert "https://other.example.com" in (tmp_path / "etc" / "config.yaml").read_text()
    assert (tmp_path / "etc" / "secret_key").read_text() == "msk_1", "it may be the only copy"
    assert {stat.S_IMODE((tmp_path / "etc" / name).stat().st_mode) for name in KEY_FILES} == {0o600}


def test_with_a_name_it_serves_https_and_the_broker_speaks_tls(tmp_path):
    run(tmp_path, "--base-url", "https://api.example.com", "--host", "gw.example.com", "--mqtt")
    put_keys(tmp_path)
    config = load_gateway(tmp_path / "etc" / "config.yaml", {})
    assert config.http.certificate.is_file()
    assert config.http.private_key.is_file()
    assert (config.mqtt.enabled, config.mqtt.tls, config.mqtt.port) == (True, True, 8883)
    assert config.mqtt.ca_file.is_file()


@pytest.mark.parametrize("host", ["2001:db8::1", "192.0.2.1", "gw.example.com"])
def test_whatever_the_address_is_devices_reach_it_by_either_kind(tmp_path, host):
    run(tmp_path, "--base-url", "https://[2001:db8::2]:8000", "--host", host)
    put_keys(tmp_path)
    path = tmp_path / "etc" / "config.yaml"
    assert load_gateway(path, {}).http.host == ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")
    port = free_port()
    path.write_text(path.read_text().replace("8443", str(port)))
    checked = CliRunner().invoke(device_gateway, ["check", "--config", str(path)]).output
    assert f"https://[::]:{port}" in checked or not socket.has_dualstack_ipv6()


def test_a_port_that_is_taken_is_told_by_the_check(tmp_path):
    run(tmp_path, "--base-url", "https://api.example.com")
    put_keys(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        path = tmp_path / "etc" / "config.yaml"
        path.write_text(f"{path.read_text()}http:\n  port: {port}\n")
        done = CliRunner().invoke(device_gateway, ["check", "--config", str(path)])
    assert done.exit_code == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in done.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--base-url", "ftp://x"], "https://HOST"),
        (["--base-url", "https://x", "--host", "https://gw"], "neither a host name"),
    ],
)
def test_what_cannot_be_used_is_refused_before_a_configuration_is_written(tmp_path, words, told):
    assert told in run(tmp_path, *words, code=2).stderr
    assert not (tmp_path / "etc" / "config.yaml").exists()


def test_without_the_extra_it_says_what_to_install(tmp_path):
    script = "import sys; sys.modules['cryptography'] = None; from gateway.cli import main; main()"
    words = ["certificates", "--host", "gw", "--dir", str(tmp_path)]
    done = run_program([sys.executable, "-c", script, *words], code=2)
    assert done.stderr == "the gateway needs cryptography: pip install '.[gateway]' in a clone of device-agent\n"
