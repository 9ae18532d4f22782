"""``fleet-simulator faults`` against a service: each option is in the rule, and what cannot be done is one line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import httpx
import pytest

from agent.wire.secret import Secret
from simulator.cli import main
from tests.support.ports import free_port
from tests.support.service_running import Bench, running

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def service() -> Iterator[Bench]:
    with running() as bench:
        yield bench


@pytest.fixture
def bench(service: Bench) -> Iterator[Bench]:
    yield service
    service.http.delete("/_emulator/faults")


@pytest.fixture
def play(bench: Bench, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run ``faults WORDS``; its exit code, output and errors."""

    def play(*words: str, base_url: str = bench.service.base_url) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(["faults", *words, "--base-url", base_url])
        shown = capsys.readouterr()
        return int(caught.value.code or 0), shown.out, shown.err

    return play


def test_every_option_becomes_a_member_of_the_rule(bench: Bench, play: Callable[..., tuple[int, str, str]]) -> None:
    device_id, key = bench.device(), bench.service.api_key
    words = [
        *("add", "latency:min_s=1,max_s=3,of=request", "--json", "--method", "POST", "--path", "/sensor-data"),
        *("--device-id", device_id, "--account-id", key, "--after", "2", "--next", "3", "--probability", "0.5"),
    ]
    code, out, err = play(*words)
    assert (code, err) == (0, "")
    made = json.loads(out)
    assert made["match"] == {"method": "POST", "path": "/sensor-data", "device_id": device_id, "account_id": key}
    assert made["times"] == {"after": 2, "next": 3, "probability": 0.5}
    assert made["effect"] == {"latency": {"min_s": 1.0, "max_s": 3.0, "of": "request"}}


def test_faults_are_added_listed_with_their_counts_and_cleared(
    bench: Bench, play: Callable[..., tuple[int, str, str]]
) -> None:
    first = play("add", "answer=503", "--next", "1")[1].split()[-1]
    second = play("add", "lose=answer", "--path", "/rules")[1].split()[-1]
    assert [bench.http.get("/products").status_code for _ in range(2)] == [503, 200]
    shown = play("list")[1]
    for word in (first, second, "every request", "next: 1", "status", "path: /rules", "always", "lose: answer"):
        assert word in shown, word
    listed = json.loads(play("list", "--json")[1])["faults"]
    assert [(one["fault_id"], one["hits"]) for one in listed] == [(first, 1), (second, 0)]
    assert play("clear", first)[0] == 0
    assert [one["fault_id"] for one in json.loads(play("list", "--json")[1])["faults"]] == [second]
    assert play("clear")[0] == 0
    assert json.loads(play("list", "--json")[1]) == {"faults": []}


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("add", "explode"), 1, "effect: 'explode' is no effect"),
        (("add", "lose=answer", "--path", "/nowhere"), 1, "match.path: the service has no path"),
        (("clear", "f0"), 1, "There is no fault 'f0'"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_changes_nothing(
    bench: Bench, play: Callable[..., tuple[int, str, str]], words: tuple[str, ...], code: int, text: str
) -> None:
    ended, out, err = play(*words)
    assert (ended, out) == (code, "")
    assert text in err
    assert err.count("\n") == 1
    assert bench.http.get("/_emulator/faults").json() == {"data": []}


def test_a_service_that_is_not_there_is_exit_code_5(play: Callable[..., tuple[int, str, str]]) -> None:
    assert play("list", base_url=f"http://127.0.0.1:{free_port()}")[0] == 5


def test_a_control_token_opens_the_service(capsys: pytest.CaptureFixture[str]) -> None:
    with running(control_token=Secret(TOKEN)) as bench:
        for token, code in ((), 2), (("--control-token", TOKEN), 0):
            with pytest.raises(SystemExit) as caught:
                main(["faults", "add", "lose=answer", "--base-url", bench.service.base_url, *token])
            assert (caught.value.code or 0) == code, capsys.readouterr().err
        with pytest.raises(httpx.RemoteProtocolError):
            bench.http.get("/products")


def test_an_account_is_made_with_keys_that_work_and_listed(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    def play_accounts(*words: str) -> str:
        with pytest.raises(SystemExit) as caught:
            main(["accounts", *words, "--base-url", bench.service.base_url])
        assert not caught.value.code
        return capsys.readouterr().out

    made = json.loads(play_accounts("add", "--name", "second", "--quota", "1", "--json"))
    keys = {"x-api-key": made["keys"][0]["api_key"], "x-secret-key": made["keys"][0]["secret_key"]}
    url = f"{bench.service.base_url}/products"
    assert [httpx.get(url, headers=keys, trust_env=False).status_code for _ in range(2)] == [200, 429]
    assert "secret key  msk_" in play_accounts("add")
    listed = play_accounts("list")
    assert "second" in listed
    assert keys["x-api-key"] in listed
    assert keys["x-secret-key"] not in listed
