"""``fleet-simulator accounts`` against a service: what it makes works, and what it cannot do is one line."""

from __future__ import annotations

import json
import stat

import httpx
import pytest

from simulator.cli import main
from tests.ports import free_port
from tests.service_running import running


@pytest.fixture(scope="module")
def bench():
    with running() as bench:
        yield bench


@pytest.fixture
def play(bench, capsys):
    """Run a command; (exit code, standard output, standard error)."""

    def play(*words, base_url=bench.service.base_url):
        with pytest.raises(SystemExit) as ended:
            main(["accounts", *words, "--base-url", base_url])
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return play


def status_of(bench, folder):
    keys = {f"x-{name.replace('_', '-')}": (folder / name).read_text().strip() for name in ("api_key", "secret_key")}
    return httpx.get(f"{bench.service.base_url}/products", headers=keys, trust_env=False).status_code


def test_an_account_is_made_from_a_file_listed_rotated_and_removed(bench, play, tmp_path):
    file = tmp_path / "acme.yaml"
    file.write_text(
        "users: [{email: ada@example.com, password: right}]\n"
        "clients: [{name: Viewer, redirect_uris: ['https://viewer.example/cb'], public: true}]\n"
    )
    words = ("add", "--name", "acme", "--quota", "100", "--profile", "plain", "--from", str(file))
    code, out, err = play(*words, "--keys-dir", str(tmp_path / "first"))
    assert (code, err) == (0, "")
    assert "ada@example.com" in out
    assert "msk_" not in out, "the secret is in its file"
    assert stat.S_IMODE((tmp_path / "first" / "secret_key").stat().st_mode) == 0o600
    assert status_of(bench, tmp_path / "first") == 200
    (listed,) = [one for one in json.loads(play("list", "--json")[1])["accounts"] if one["name"] == "acme"]
    assert (listed["quota"], listed["profile"], len(listed["keys"])) == (100, "plain", 1)
    assert "acme" in play("list")[1]
    assert play("keys", "add", "acme", "--keys-dir", str(tmp_path / "second"))[0] == 0
    assert play("keys", "remove", "acme", listed["keys"][0]["api_key"])[0] == 0
    assert [status_of(bench, tmp_path / name) for name in ("first", "second")] == [401, 200]
    assert play("change", "acme", "--name", "acme 2", "--default-quota")[0] == 0
    shown = bench.http.get("/_emulator/accounts/acme%202").json()
    assert shown["quota"] is None
    assert play("remove", "acme 2")[0] == 0
    assert status_of(bench, tmp_path / "second") == 401


def test_secrets_are_shown_once_where_no_folder_is_given(bench, play):
    code, out, _ = play("add", "--json")
    made = json.loads(out)
    assert code == 0
    assert made["keys"][0]["secret_key"].startswith("msk_")
    out = play("keys", "add", made["account_id"])[1]
    assert "msk_" in out
    assert "msk_" not in play("list", "--json")[1]


def test_what_cannot_be_done_is_one_line_and_an_exit_code(play, tmp_path):
    play("add", "--name", "twice")
    code, out, err = play("add", "--name", "twice")
    assert (code, out) == (1, "")
    assert "there is an account named 'twice' already" in err
    assert len(err.splitlines()) == 1
    assert play("remove", "nobody")[0] == 1
    assert play("change", "twice")[0] == 2
    assert play("change", "twice", "--quota", "1", "--default-quota")[0] == 2
    assert play("add", "--from", str(tmp_path / "none.yaml"))[0] == 2
    (tmp_path / "list.yaml").write_text("- a\n")
    assert play("add", "--from", str(tmp_path / "list.yaml"))[0] == 2
    code, _, err = play("add", "--profile", "nonsense")
    assert code == 2
    assert "nonsense" in err
    assert play("list", base_url=f"http://127.0.0.1:{free_port()}")[0] == 5


def test_the_control_token_goes_along(capsys):
    from agent.wire.secret import Secret

    with running(control_token=Secret("a-control-token-of-ours")) as bench:
        for token, code in ((), 2), (("--control-token", "a-control-token-of-ours"), 0):
            with pytest.raises(SystemExit) as ended:
                main(["accounts", "list", "--base-url", bench.service.base_url, *token])
            assert ended.value.code == code, capsys.readouterr().err
