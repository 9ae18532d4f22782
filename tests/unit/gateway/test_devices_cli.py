"""``device-gateway devices``, against a running service."""

from __future__ import annotations

import json
import re

import pytest
import yaml
import zxingcpp
from click.testing import CliRunner
from PIL import Image

from agent.config.load import load_config
from agent.wire.enrollment import label_text, parse_code
from gateway.certificates import make_certificates
from gateway.cli import device_gateway
from gateway.tokens import Tokens
from tests.support.ports import free_port
from tests.support.service_running import running


@pytest.fixture(scope="module")
def service():
    with running() as bench:
        yield bench


@pytest.fixture(scope="module")
def product_id(service):
    return service.product()


@pytest.fixture
def site(tmp_path, service):
    """A folder with the gateway's configuration and keys; a function that runs a command in it."""
    return Site(tmp_path, service.service)


class Site:
    def __init__(self, folder, service):
        self.folder = folder
        self.config = folder / "gateway.yaml"
        self.tokens = folder / "state" / "tokens.db"
        (folder / "state").mkdir()
        values = {"service": {"base_url": service.base_url}, "state_dir": str(folder / "state"), "auth": {}}
        for name, key in (("api_key", service.api_key), ("secret_key", service.secret_key.reveal())):
            path = folder / name
            path.write_text(key)
            path.chmod(0o600)
            values["auth"][f"{name}_file"] = str(path)
        self.values = values
        self.config.write_text(yaml.safe_dump(values))

    def run(self, *arguments, code=0):
        done = CliRunner().invoke(device_gateway, ["devices", *map(str, arguments), "--config", str(self.config)])
        assert done.exit_code == code, done.output
        return done

    def json(self, *arguments, code=0):
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def owner_of(self, token):
        with Tokens(self.tokens) as table:
            return table.device_of(token)


def test_a_device_that_the_service_knows_gets_a_token_that_works(site, service, product_id):
    device_id = service.device(product_id, "SN-1")
    shown_id, token = site.run("add", "--device-id", device_id).stdout.strip().split(": ")
    assert shown_id == device_id
    assert re.fullmatch("dat_[A-Za-z0-9]{32}", token)
    assert site.owner_of(token) == device_id
    done = site.run("add", "--device-id", "typo", code=2)
    assert "typo: the service does not know this device" in done.stderr
    assert site.run("add", "--device-id", "typo", "--no-check").stdout.startswith("typo: dat_")


def test_many_come_from_a_file_which_may_be_run_again(site, service, product_id):
    known = [service.device(product_id, f"SN-{number}") for number in range(10, 13)]
    path = site.folder / "devices"
    path.write_text("\ufeff# the doors\n" + "\n".join([*known, "", known[0]]))
    answer = site.json("add", "--from", path)
    assert {site.owner_of(issued["token"]) for issued in answer["issued"]} == set(known)
    again = site.json("add", "--from", path)
    assert (again["issued"], set(again["kept"])) == ([], set(known))
    replaced = {each["token"] for each in site.json("add", "--from", path, "--again")["issued"]}
    assert {site.owner_of(token) for token in replaced} == set(known)
    assert replaced.isdisjoint(each["token"] for each in answer["issued"])


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", ["no device id"]), (b"d1\n\xff\n", ["not UTF-8"]), (b"good\na/b\nc#", ["'a/b'", "'c#'"])],
)
def test_a_file_with_a_fault_is_told_whole_and_nothing_is_done(site, content, words):
    path = site.folder / "devices"
    path.write_bytes(content)
    told = site.run("add", "--no-check", "--from", path, code=2).stderr
    assert all(word in told for word in words), told
    assert not site.tokens.exists() or site.json("list") == []
    assert "name the devices" in site.run("add", code=2).stderr


def test_a_service_that_is_away_is_told_and_nothing_is_issued(site):
    site.config.write_text(yaml.safe_dump({**site.values, "service": {"base_url": f"http://127.0.0.1:{free_port()}"}}))
    assert "the service:" in site.run("add", "--device-id", "d1", code=5).stderr
    assert site.json("list") == []


def test_a_ready_configuration_for_mqtt_names_broker_and_authority(site):
    from datetime import UTC, datetime

    authority = make_certificates(site.folder / "tls", ["gw"], datetime.now(UTC)).authority
    out = site.folder / "out"
    address = ("--broker", "gw.example.com:8884", "--ca", authority)
    site.run("add", "--no-check", "--device-id", "d1", "--config-out", out, "--device-dir", out, *address)
    loaded = load_config(out / "config.yaml", {}).config
    assert (loaded.mqtt.host, loaded.mqtt.port, loaded.mqtt.tls) == ("gw.example.com", 8884, True)
    assert loaded.service is None
    assert loaded.mqtt.ca_file.read_bytes() == authority.read_bytes()


def test_a_place_that_is_taken_or_an_address_that_is_not_known_is_refused_before_a_token_is_made(site):
    out = ("--no-check", "--config-out", site.folder / "out")
    site.run("add", "--device-id", "d1", *out)
    assert "is there already" in site.run("add", "--device-id", "d2", *out, code=2).stderr
    public = {**site.values, "http": {"host": "0.0.0.0", "allow_plain_http": True}}
    site.config.write_text(yaml.safe_dump(public))
    assert "--url" in site.run("add", "--device-id", "d3", *out, code=2).stderr
    assert [each["device_id"] for each in site.json("list")] == ["d1"]


def test_the_qr_code_on_the_terminal_reads_as_the_label_of_the_code(site):
    where = ("--plain", "--url", "http://gw:8081", "--product-id", "p", "--user-id", "me")
    shown = site.run("invite", "--qr", *where).stdout.replace("\xa0", " ")
    lines = [line for line in shown.splitlines() if set(line) <= set(" ▀▄█") and len(line) > 20]
    # Without colours the blocks are the light modules, as on a dark terminal.
    picture = Image.new("L", (len(lines[0]), 2 * len(lines)))
    for y, line in enumerate(lines):
        for x, block in enumerate(line):
            picture.putpixel((x, 2 * y), 255 if block in "▀█" else 0)
            picture.putpixel((x, 2 * y + 1), 255 if block in "▄█" else 0)
    [found] = zxingcpp.read_barcodes(picture.resize((picture.width * 4, picture.height * 4), Image.Resampling.NEAREST))
    assert found.text == label_text("http://gw:8081", parse_code(shown.splitlines()[0]))


def test_rotating_leaves_the_old_token_until_the_new_one_is_used(site):
    old = site.json("add", "--no-check", "--device-id", "d1")["issued"][0]["token"]
    new = site.json("rotate", "d1")["issued"][0]["token"]
    [listed] = site.json("list")
    assert listed["state"] == "valid"
    assert listed["old_token_until"]
    assert [site.owner_of(each) for each in (old, new, old)] == ["d1", "d1", None]
    last = site.json("rotate", "--all")["issued"][0]["token"]
    assert [site.owner_of(each) for each in (last, new)] == ["d1", None]
    [listed] = site.json("list")
    assert (listed["state"], listed["old_token_until"]) == ("valid", None)
    assert "d9 has no valid token" in site.run("rotate", "d9", code=2).stderr
    assert "name the devices" in site.run("rotate", code=2).stderr


def test_the_list_never_shows_a_token_and_has_revoked_devices_when_it_is_asked_for_all(site):
    (site.folder / "secret_key").unlink()  # it needs no key pair
    token = site.json("add", "--no-check", "--device-id", "d1")["issued"][0]["token"]
    shown = site.run("list").stdout + json.dumps(site.json("list"))
    assert "d1" in shown
    assert token.removeprefix("dat_") not in shown
    assert "d1: 1 token(s) revoked" in site.run("revoke", "d1").stdout
    assert site.owner_of(token) is None
    assert site.json("list") == []
    assert [each["state"] for each in site.json("list", "--all")] == ["revoked"]
    assert "d1 has no valid token" in site.run("revoke", "d1", code=1).stderr
    assert site.run("add", "--no-check", "--device-id", "d1").stdout.startswith("d1: dat_")


def test_where_a_broker_is_used_it_says_what_is_next(site):
    site.config.write_text(yaml.safe_dump({**site.values, "mqtt": {"enabled": True}}))
    done = site.run("add", "--no-check", "--device-id", "d1")
    assert "broker-config" in done.stderr
    assert (site.folder / "state" / "broker-wanted").exists()
