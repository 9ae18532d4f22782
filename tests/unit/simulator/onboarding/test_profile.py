"""Profiles of servers over a socket: the same server the same bytes, and what was planted is what differs."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from simulator.onboarding.cli import onboard_group
from simulator.onboarding.exchange import shape_of
from simulator.onboarding.profile import compare_profiles, read_profile
from tests.onboarding_fakes import fake_server

CASES = ("round_trip", "remove_twice", "take_over", "race_two_users", "race_remove_register", "revoked_signature")


@pytest.fixture(name="take")
def _take(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("msk_canary_77aa")

    def take(name, quirk=None, cases=CASES):
        file = tmp_path / name
        only = [part for case in cases for part in ("--only", case)]
        with fake_server(quirk) as server:
            keys = ["--base-url", server.base_url, "--api-key", "mk_1", "--secret-key-file", str(secret)]
            result = CliRunner().invoke(onboard_group, ["profile", str(file), *keys, *only])
            assert result.exit_code == 0, result.output
            assert "canary" not in result.output + file.read_text()
            assert server.memory.devices == {}
            assert server.memory.products == set()
        return file

    return take


def compare(one, other, *more):
    return CliRunner().invoke(onboard_group, ["compare", str(one), str(other), *more])


def test_the_same_server_gives_the_same_bytes_and_nothing_of_the_run_is_in_them(take):
    one, other = take("one"), take("other")
    assert one.read_bytes() == other.read_bytes()
    text = one.read_text()
    for trace in ("127.0.0.1", "OB-", "onboard-", "d-1", "2026", "2025"):
        assert trace not in text
    result = compare(one, other)
    assert (result.exit_code, result.stdout.strip()) == (0, "0 difference(s)")


def planted(method, path, body, right):
    """Four differences from the other server, each in one kind of answer."""
    status, value = right
    if method == "DELETE" and path.startswith("/onboarding") and status == 204:
        return 200, {"removed": True}
    if path == "/onboarding/device" and status == 409:
        return 409, {**value, "error": "already_taken"}
    if path == "/onboarding/scan-qr" and status == 200:
        return 200, {**value, "product": {**value["product"], "category": "x"}}
    return right


def test_the_differences_of_two_servers_are_exactly_those_that_were_planted(take):
    one, other = take("one"), take("other", planted)
    result = compare(one, other, "--json")
    assert result.exit_code == 1
    found = {(each["what"], each["one"], each["other"]) for each in json.loads(result.stdout)["differences"]}
    assert found == {
        ("status", "204", "200"),
        ("body", "nothing", '{"removed": "boolean"}'),
        ("error", "device_already_registered", "already_taken"),
        ("body.product.category", "absent", "string"),
        ("answers", *answers_of_the_race(one, other)),
    }
    steps = {each["step"].partition(" ")[2] for each in json.loads(result.stdout)["differences"]}
    assert steps == {"scan", "remove", "another user registers", "4 x register, 4 x another user registers"}
    table = compare(one, other).stdout
    assert "already_taken" in table
    assert table.strip().endswith("difference(s)")
    assert table.count("already_taken") <= 2  # what differs alike in several cases is one row, and the race is another


def answers_of_the_race(*files):
    for file in files:
        steps = read_profile(file)["cases"]["race_two_users"]["steps"]
        yield json.dumps(steps[1]["answers"], sort_keys=True)


def test_a_case_that_only_one_server_was_asked_is_a_difference(take):
    one, other = take("one", cases=("round_trip",)), take("other", cases=("round_trip", "remove_twice"))
    (difference,) = compare_profiles(read_profile(one), read_profile(other))
    assert (difference.case, difference.one, difference.other) == ("remove_twice", "not in this profile", "played")


@pytest.mark.parametrize("content", [None, "{}", "[]", "not json", '{"format": "device-agent/onboarding-profile/0"}'])
def test_a_file_that_is_no_profile_ends_with_code_2_and_the_fix(tmp_path, content):
    file = tmp_path / "p.json"
    if content is not None:
        file.write_text(content)
    result = compare(file, file)
    assert result.exit_code == 2
    assert str(file) in result.stderr


def test_a_shape_has_names_and_types_and_no_value():
    value = {"b": [{"x": 1, "y": None}, {"x": 2.5}], "a": "secret", "c": [], "d": [1, "x"], "e": True}
    assert shape_of(value) == {
        "a": "string",
        "b": [{"x": "number", "y?": "nothing"}],
        "c": [],
        "d": ["number or string"],
        "e": "boolean",
    }
