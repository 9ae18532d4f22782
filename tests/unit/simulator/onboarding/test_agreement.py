"""An answer that contradicts label, user or an earlier answer fails in every command; one that says nothing passes."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from agent.wire.devices import Device
from simulator.labels.payload import label_text
from simulator.onboarding.agreement import Known, contradictions, is_same, scan_contradictions
from simulator.onboarding.cli import onboard_group
from simulator.wire.messages import ScanAnswer
from tests.onboarding_fakes import fake_server

MEMBERS = ("device_identifier", "product_id", "user_id", "device_id", "device_name")
WRONG = "WRONG-VALUE"
SCANNED = ("product.product_id", "device_identifier", "qr_info.product_id", "qr_info.device_identifier")
PLANTED = [
    *(("scan", member) for member in SCANNED),
    # The first registration is what names the id; a second one that names another is in `register_twice`.
    *(("registration", member) for member in MEMBERS if member != "device_id"),
    ("registration", "productId"),
    *(("list", member) for member in MEMBERS),
    ("list", "deviceIdentifier"),
    *(("removal", member) for member in MEMBERS if member != "device_name"),
]
ABSENT = [
    *(("scan", member) for member in (*SCANNED, "qr_info", "already_registered")),
    *(("registration", member) for member in MEMBERS),
    *(("list", member) for member in MEMBERS),
]
JUDGED = ("round_trip", "register_twice", "second_owner", "clone_other_product")
TOLERANT = (*JUDGED, "return", "clone_*_user", "wrong_identifier", "race_two_users", "taken.*", "removed.register")


def kind_of(method, path):
    if path.startswith("/onboarding/scan"):
        return "scan"
    if path.startswith("/onboarding/device"):
        return "registration" if method == "POST" else "removal"
    return "list" if path.startswith("/onboarding/user") else ""


def at(value, member):
    """The object that holds a member, and the member's own name."""
    *outer, name = member.split(".")
    for each in outer:
        value = value.setdefault(each, {})
    return value, name


def planted(kind, member, value=WRONG):
    """Every answer of a kind with this value of a member, or without it."""

    def plant(record):
        holder, name = at(record, member)
        plain = {"productId": "product_id", "deviceIdentifier": "device_identifier"}.get(name, name)
        for each in {name, plain}:
            holder.pop(each, None)
        if value is not None:
            holder[name] = value

    def quirk(method, path, _body, right):
        status, answer = right
        if kind_of(method, path) != kind or status >= 400:
            return right
        if kind == "removal":
            return 200, {member: value}
        for record in answer if isinstance(answer, list) else [answer]:
            plant(record)
        return status, answer

    return quirk


@pytest.fixture(name="way")
def _way(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("msk_a")
    return lambda server: ["--base-url", server.base_url, "--api-key", "mk_a", "--secret-key-file", str(secret)]


@pytest.fixture(name="labels")
def _labels(tmp_path):
    """The manifest of three labels of product p-1, as ``labels make`` writes it."""
    names = [f"SN-{number}" for number in range(3)]
    made = [{"text": label_text("p-1", name), "product_id": "p-1", "identifier": name} for name in names]
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "manifest.json").write_text(json.dumps({"format": "device-agent/labels/1", "labels": made}))
    return str(tmp_path / "labels")


def play_cases(way, quirk, names):
    with fake_server(quirk) as server:
        chosen = [part for name in names for part in ("--only", name)]
        return CliRunner().invoke(onboard_group, ["cases", *way(server), *chosen], terminal_width=10_000)


def play_campaign(way, quirk, labels, tmp_path, *more):
    with fake_server(quirk) as server:
        server.memory.products.add("p-1")
        out = ["--out", str(tmp_path / "out"), "--user-id", "u-1"]
        return CliRunner().invoke(onboard_group, ["campaign", labels, *way(server), *out, *more])


def printed(result):
    """The text without the line ends of tables."""
    return " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(("kind", "member"), PLANTED)
def test_cases_fail_and_name_the_member_with_what_was_expected_and_found(way, kind, member, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    result = play_cases(way, planted(kind, member), JUDGED)
    assert result.exit_code == 1, result.output
    name = member.rpartition(".")[2] if kind == "scan" and "qr_info" not in member else member
    snake = {"productId": "product_id", "deviceIdentifier": "device_identifier"}.get(name, name)
    assert f"{snake}: expected '" in printed(result), result.output
    assert f"found '{WRONG}'" in printed(result), result.output


@pytest.mark.parametrize(("kind", "member"), PLANTED)
def test_a_campaign_fails_and_names_the_member_with_what_was_expected_and_found(way, labels, tmp_path, kind, member):
    more = ["--remove"] if kind == "removal" else []
    result = play_campaign(way, planted(kind, member), labels, tmp_path, *more)
    assert result.exit_code == 1, result.output
    name = member.rpartition(".")[2] if kind == "scan" and "qr_info" not in member else member
    snake = {"productId": "product_id", "deviceIdentifier": "device_identifier"}.get(name, name)
    assert f"{snake}: expected '" in printed(result), result.output
    assert f"found '{WRONG}'" in printed(result), result.output


@pytest.mark.parametrize(("kind", "member"), ABSENT)
def test_cases_pass_when_an_answer_says_nothing(way, kind, member):
    result = play_cases(way, planted(kind, member, None), TOLERANT)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(("kind", "member"), ABSENT)
def test_a_campaign_passes_when_an_answer_says_nothing(way, labels, tmp_path, kind, member):
    result = play_campaign(way, planted(kind, member, None), labels, tmp_path)
    assert result.exit_code == 0, result.output


def test_a_second_registration_that_answers_another_id_fails_and_names_both(way):
    count = iter(range(100))

    def quirk(method, path, _body, right):
        is_registration = kind_of(method, path) == "registration"
        return (right[0], {**right[1], "device_id": f"other-{next(count)}"}) if is_registration else right

    result = play_cases(way, quirk, ["register_twice"])
    assert result.exit_code == 1
    assert "device_id: expected 'other-0', found 'other-1'" in printed(result)


def test_an_id_of_another_label_is_not_a_new_device_s(way):
    first = {}

    def quirk(method, path, body, right):
        if kind_of(method, path) != "registration":
            return right
        device_id = first.setdefault(body["device_identifier"], right[1]["device_id"])
        return right[0], {**right[1], "device_id": device_id}

    result = play_cases(way, quirk, ["clone_other_product"])
    assert result.exit_code == 1
    assert "device_id: expected one of its own, found 'd-1' of another device" in printed(result)


def test_what_a_long_answer_says_is_cut(way):
    result = play_cases(way, planted("scan", "device_identifier", "x" * 100_000), ["round_trip"])
    assert result.exit_code == 1
    assert len(result.output) < 5_000


def test_a_number_that_reads_the_same_is_no_contradiction():
    known = Known("SN-1", "7", "12", "5")
    assert contradictions(known, Device.receive({"device_id": 5, "product_id": 7, "user_id": 12})) == ()
    shown = ScanAnswer.receive({"product_id": 7, "qr_info": {"product_id": 7}})
    assert scan_contradictions(known, shown) == ()


def test_a_record_of_another_product_or_with_another_label_s_id_is_another_device():
    known = Known("SN-1", "p-1", device_id="d-1")
    assert is_same(known, Device(device_id="d-1", device_identifier="SN-9"))
    assert is_same(known, Device(device_identifier="SN-1"))
    assert not is_same(known, Device(device_id="d-2", device_identifier="SN-1", product_id="p-2"))
    assert not is_same(known, Device(device_id="d-2", device_identifier="SN-1"), {"d-2"})
