"""The second account that a local service makes for a run of cases, and takes back."""

from __future__ import annotations

import json

import pytest

from agent.wire.secret import Secret
from simulator.cli import main
from tests.service_running import running

STRANGERS = ("foreign_label", "foreign_account", "registered.another_account_removes")


@pytest.fixture
def play(tmp_path, capsys):
    def play(bench, *words, command="cases"):
        (tmp_path / "secret").write_text(bench.service.secret_key.reveal())
        (tmp_path / "secret").chmod(0o600)
        only = [word for name in STRANGERS for word in ("--only", name)]
        keys = ("--base-url", bench.service.base_url, "--api-key", bench.service.api_key)
        with pytest.raises(SystemExit) as ended:
            main(["onboard", command, *words, *keys, "--secret-key-file", str(tmp_path / "secret"), *only])
        said = capsys.readouterr()
        assert ended.value.code == 0, said
        return said.out

    return play


def accounts(bench):
    return [one["name"] for one in bench.http.get("/_emulator/accounts").json()["data"]]


def test_a_local_service_lends_the_account_that_strangers_need_and_has_it_no_longer_afterwards(play):
    with running() as bench:
        report = json.loads(play(bench, "--json"))
        assert (report["counts"]["passed"], report["counts"]["skipped"]) == (3, 0)
        assert accounts(bench) == ["default"]
        assert bench.http.get("/products").json()["data"] == []


def test_a_profile_of_a_server_has_the_cases_with_strangers_too(play, tmp_path):
    with running() as bench:
        play(bench, str(tmp_path / "profile.json"), command="profile")
        assert "foreign_account" in (tmp_path / "profile.json").read_text()
        assert accounts(bench) == ["default"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [({}, ("--keep",)), ({"control": False}, ()), ({"control_token": Secret("a-token-that-nobody-has")}, ())],
    ids=["kept for a look", "control paths off", "a token is needed"],
)
def test_where_none_can_be_lent_the_cases_are_skipped_with_what_they_need(play, settings, words):
    with running(**settings) as bench:
        said = " ".join(play(bench, "--only", "round_trip", *words).split())
    assert "3 skipped: it needs a second account: give --other-api-key" in said
