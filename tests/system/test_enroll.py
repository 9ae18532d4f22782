"""A device enrolls with a code: real service, gateway with TLS, and agent, as docs/install.md shows."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from agent.wire.enrollment import parse_code
from gateway.certificates import make_certificates
from tests.support.ports import free_port
from tests.support.processes import run_module
from tests.system.agent_bench import wait_until
from tests.system.test_gateway_journey import travelling

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


@pytest.fixture
def journey(tmp_path):
    with travelling(tmp_path) as journey:
        journey.set_up()
        journey.url = f"https://127.0.0.1:{journey.port}"
        yield journey


def invite(journey, *options):
    words = ("--product-id", journey.product_id, "--user-id", "me", "--url", journey.url, *options)
    return json.loads(journey.run("devices", "invite", "--json", *words))


def enroll(journey, identifier, *words, code=0, folder=None, typed=""):
    """``device-agent enroll`` into a folder named like the device, or this one; both its outputs."""
    folder = folder or journey.folder / identifier
    words = ("enroll", *words, "--identifier", identifier, "--dir", folder)
    done = run_module("agent.cli", *words, code=code, cwd=journey.folder, input=typed)
    return done.stdout + done.stderr


def test_a_device_enrolls_works_and_enrolls_again_with_the_same_id(journey):
    journey.start()
    code = invite(journey)["code"]
    # A clock of 1970 would find the certificate not yet good; the code's fingerprint needs no clock.
    out = enroll(journey, "SN-1", journey.url, code.lower().replace("-", " "))
    folder = journey.folder / "SN-1"
    config = yaml.safe_load((folder / "config.yaml").read_text())
    device_id = config["device"]["device_id"]
    assert f"this device is {device_id}" in out
    assert config["service"]["base_url"] == journey.url
    assert config["service"]["ca_file"] == str(folder / "ca.pem")
    assert "#" in (folder / "config.yaml").read_text()
    assert (folder / "token").stat().st_mode & 0o777 == 0o600
    journey.start_agent("SN-1")
    journey.ping(device_id)
    wait_until(lambda: list(journey.client.sensor_data(device_id)), 90.0)

    # Again, with the same code and with another one: the same device, a new token, its own configuration.
    marked = (folder / "config.yaml").read_text() + "\n# mine\n"
    (folder / "config.yaml").write_text(marked)
    before = (folder / "token").read_text()
    assert "kept" in enroll(journey, "SN-1", journey.url, code)
    assert "kept" in enroll(journey, "SN-1", invite(journey, "--replace")["label"])
    assert (folder / "config.yaml").read_text() == marked
    assert (folder / "token").read_text() != before
    journey.ping(device_id)
    assert [each.device_id for each in journey.client.devices()] == [device_id]
    # One of its tokens is good still, however soon after each other they were issued and used.
    assert [each["device_id"] for each in json.loads(journey.run("devices", "list", "--json"))] == [device_id]


def test_a_code_takes_no_token_from_a_device_that_holds_one(journey):
    journey.start()
    used = invite(journey)
    enroll(journey, "SN-1", journey.url, used["code"])
    token = (journey.folder / "SN-1" / "token").read_text()
    journey.start_agent("SN-1")
    device_id = yaml.safe_load((journey.folder / "SN-1" / "config.yaml").read_text())["device"]["device_id"]
    journey.ping(device_id)
    # A stranger with a code for new devices names the identifier of this one, or of one that was added by hand.
    added = journey.add("SN-7", "--url", journey.url)
    stranger, fleet = journey.folder / "stranger", invite(journey, "--count", "5")
    for identifier in ("SN-1", "SN-7"):
        said = enroll(journey, identifier, journey.url, fleet["code"], folder=stranger, code=1)
        assert "holds a valid token" in said
    assert not (stranger / "token").exists()
    journey.run("devices", "revoke", added)
    enroll(journey, "SN-7", journey.url, fleet["code"], folder=stranger)
    journey.ping(device_id)
    assert (journey.folder / "SN-1" / "token").read_text() == token
    # The same code soon is the device's own retry; taken back it is good for nothing, though it was used.
    enroll(journey, "SN-1", journey.url, used["code"])
    journey.run("devices", "invites", "--revoke", used["invite_id"])
    assert "was taken back" in enroll(journey, "SN-1", journey.url, used["code"], code=1)
    # The operator's word.
    assert "kept" in enroll(journey, "SN-1", journey.url, typed=invite(journey, "--replace")["code"] + "\n")
    journey.ping(device_id)


def test_what_goes_wrong_has_one_line_with_its_fix_and_leaves_the_machine_as_it_was(journey, tmp_path):
    gateway = journey.start()
    code = invite(journey)["code"]
    other_end = "0" if code[-1] != "0" else "1"
    for words, exit_code, said in (
        ((journey.url, code[:-1] + other_end), 2, "mistyped"),
        ((journey.url, code[:-2]), 2, "28"),
        ((journey.url,), 2, "the CODE is missing"),
        (("gateway", code), 2, "such as https://HOST:PORT"),
        (("https://127.0.0.1:99999", code), 2, "such as https://HOST:PORT"),
        ((journey.url.replace("https", "http"), code), 2, "write https://"),
        ((f"https://127.0.0.1:{free_port()}", code), 5, "cannot be reached"),
        (("https://gateway.invalid:8443", code), 5, "has no address"),
        ((journey.service.base_url.replace("http", "https"), code), 5, "does not speak TLS"),
    ):
        out = enroll(journey, "SN-1", *words, code=exit_code)
        assert said in out, (words, out)
        assert "Traceback" not in out
        assert not (journey.folder / "SN-1").exists()
    expired = invite(journey, "--expires", "1s")
    wait_until(lambda: json.loads(journey.run("devices", "invites", "--all", "--json"))[0]["state"] == "expired", 30.0)
    assert "has expired" in enroll(journey, "SN-1", journey.url, expired["code"], code=1)
    assert "unknown here" in enroll(journey, "SN-1", journey.url, str(_unknown(code)), code=1)

    # Another device's configuration is there, and stays.
    enroll(journey, "SN-1", journey.url, code)
    folder = journey.folder / "SN-1"
    text = (folder / "config.yaml").read_text()
    mine = yaml.safe_load(text)["device"]["device_id"]
    (folder / "config.yaml").write_text(text.replace(mine, "another-device"))
    token = (folder / "token").read_text()
    assert "is of the device another-device" in enroll(journey, "SN-1", journey.url, code, code=2)
    assert (folder / "token").read_text() == token

    # A gateway with another certificate gets no code.
    assert gateway.terminate(90.0)[0] == 0
    shutil.rmtree(journey.folder / "etc" / "tls")
    make_certificates(journey.folder / "etc" / "tls", ["127.0.0.1"], datetime.now(UTC))
    second = journey.start()
    assert "another certificate" in enroll(journey, "SN-2", journey.url, code, code=2)
    assert not any("enroll=" in line for line in second.lines)
    assert code not in "\n".join(gateway.lines + second.lines)


def _unknown(code):
    """The same certificate and another secret."""
    known = parse_code(code)
    return type(known)("0" * len(known.secret), known.fingerprint)


def test_a_folder_that_cannot_be_written_is_known_before_the_code_is_sent(journey):
    gateway = journey.start()
    code = invite(journey)["code"]
    # Root may write nearly everywhere, and not there.
    assert "cannot be written" in enroll(journey, "SN-1", journey.url, code, code=2, folder="/proc/device-agent")
    assert not any("enroll=" in line for line in gateway.lines)
    enroll(journey, "SN-1", journey.url, code)


def test_without_tls_a_code_is_made_for_this_machine_or_a_closed_network_only(journey):
    words = ("--product-id", journey.product_id, "--user-id", "me")
    journey.run("devices", "invite", *words, "--url", "http://192.0.2.1:8081", code=2)
    journey.run("devices", "invite", *words, "--url", "gateway", code=2)
    journey.run("devices", "invite", *words, "--url", "http://127.0.0.1:8081")
    journey.run("devices", "invite", *words, "--url", "http://192.0.2.1:8081", "--plain")
    journey.run("devices", "invite", *words, "--url", journey.url, "--expires", "soon", code=2)


def files(folder):
    """Each path below with its mode and content."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


def test_a_clock_by_which_the_certificate_is_not_good_is_named_and_nothing_is_written(journey):
    """As with a board without a battery, whose clock is behind the certificate's begin."""
    shutil.rmtree(journey.folder / "etc" / "tls")
    make_certificates(journey.folder / "etc" / "tls", ["127.0.0.1"], datetime.now(UTC) + timedelta(days=400))
    journey.start()
    code = invite(journey)["code"]
    before = files(journey.folder / "etc")
    said = enroll(journey, "SN-1", journey.url, code, code=2)
    assert "this device's clock: " in said
    assert "set this machine's clock" in said
    assert not (journey.folder / "SN-1").exists()
    assert files(journey.folder / "etc") == before
    # The code is good again for this device, and for no other one.
    assert "this device's clock: " in enroll(journey, "SN-1", journey.url, code, code=2)
    assert "was used" in enroll(journey, "SN-2", journey.url, code, code=1)


def test_a_certificate_for_another_name_is_named_before_anything_is_written(journey):
    shutil.rmtree(journey.folder / "etc" / "tls")
    make_certificates(journey.folder / "etc" / "tls", ["gateway.example.com"], datetime.now(UTC))
    journey.start()
    said = enroll(journey, "SN-1", journey.url, invite(journey)["code"], code=2)
    assert "a name that the certificate shows" in said
    assert not (journey.folder / "SN-1").exists()


def test_the_broker_learns_of_an_enrolled_device_by_one_command(journey):
    folder = journey.folder / "mosquitto"
    command = ("broker-config", "--conf", folder / "dg.conf", "--dir", folder / "dg", "--standalone")
    assert "run device-gateway broker-config without --reload first" in journey.run(*command, "--reload", code=2)
    journey.run(*command)
    conf = (folder / "dg.conf").read_text()
    mark = journey.folder / "var" / "broker-wanted"
    journey.start()
    enroll(journey, "SN-1", journey.url, invite(journey, "--broker", "127.0.0.1:1883", "--plain")["code"])
    assert mark.exists()
    (device,) = journey.client.devices()
    assert device.device_id not in (folder / "dg" / "passwords").read_text()

    assert "reload mosquitto" in journey.run(*command)

    assert not mark.exists()
    lines = (folder / "dg" / "passwords").read_text().splitlines()
    assert {line.partition(":")[0] for line in lines} == {device.device_id, "gateway"}
    assert not (folder / "dg" / "passwords").stat().st_mode & 0o037
    assert (folder / "dg.conf").read_text() == conf
    assert "nothing changed" in journey.run(*command)
    assert "nothing changed" in journey.run(*command, "--reload"), "and mosquitto is left alone"
