"""What becomes of grants: races, lifetimes, revocation, provisioning, accounts kept apart, and nothing in clear."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from simulator.service.oauth.tokens import ACCESS_S, LONGEST_S, REFRESH_S, prune
from simulator.wire import paths
from tests.api.oauth import BARE, EMAIL, PASSWORD, Partner, partner, refused, rows
from tests.support.service_running import Bench, running

AT_ONCE = 20


@pytest.fixture
def bench():
    with running() as bench:
        bench.add_user(EMAIL, PASSWORD, user_id="user-0001")
        yield bench


@pytest.fixture(params=[False, True], ids=["confidential", "public"])
def either(request, bench) -> Partner:
    return partner(bench, public=request.param)


def at_once(do: Callable[[], httpx.Response]) -> list[httpx.Response]:
    start = threading.Barrier(AT_ONCE)

    def one(_: int) -> httpx.Response:
        start.wait()
        return do()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, range(AT_ONCE)))


@pytest.mark.parametrize("what", ["code", "refresh token"])
def test_of_many_who_come_at_once_one_wins_and_the_grant_is_revoked(either, what):
    if what == "code":
        code = either.code()
        answers = at_once(lambda: either.exchange(code))
    else:
        token = either.tokens()["refresh_token"]
        answers = at_once(lambda: either.refresh(token))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 400: AT_ONCE - 1}
    assert {answer.json()["error"] for answer in answers if answer.status_code == 400} == {"invalid_grant"}
    won = next(answer.json() for answer in answers if answer.status_code == 200)
    assert either.call(won["access_token"]).json()["error"] == "invalid_token"
    refused(either.refresh(won["refresh_token"]), 400, "invalid_grant")


def test_an_access_token_lives_an_hour_and_a_refresh_token_thirty_days_from_its_last_rotation(bench, either):
    start, end = either.tokens(), either.tokens()
    bench.clock.advance(ACCESS_S - 0.001)
    assert either.call(start["access_token"]).status_code == 200
    bench.clock.advance(0.001)
    assert either.call(start["access_token"]).json()["error"] == "invalid_token"
    bench.clock.advance(REFRESH_S - ACCESS_S - 0.001)
    assert either.refresh(start["refresh_token"]).status_code == 200
    bench.clock.advance(0.001)
    refused(either.refresh(end["refresh_token"]), 400, "invalid_grant")


def test_after_ninety_days_the_user_is_asked_again_however_often_it_was_refreshed(bench, either):
    tokens = either.tokens()
    for _ in range(LONGEST_S // (REFRESH_S // 2) - 1):
        bench.clock.advance(REFRESH_S // 2)
        tokens = either.refresh(tokens["refresh_token"]).json()
    bench.clock.advance(REFRESH_S // 2 - 1)
    tokens = either.refresh(tokens["refresh_token"]).json()
    bench.clock.advance(1)
    refused(either.refresh(tokens["refresh_token"]), 400, "invalid_grant")


def test_what_is_over_is_deleted_in_time_and_a_used_code_stays_as_long_as_its_grant(bench):
    made = partner(bench)

    def left() -> list[int]:
        bench.service.do(lambda service: prune(service.db.sql, bench.clock.now_ms()))
        return [len(rows(bench, name)) for name in ("tokens", "grants", "authorization_codes")]

    code = made.code()
    made.code()
    first = made.exchange(code).json()
    assert left() == [2, 1, 2]
    bench.clock.advance(ACCESS_S)
    assert left() == [1, 1, 1]
    refused(made.exchange(code), 400, "invalid_grant")  # known as used long after its own time
    refused(made.refresh(first["refresh_token"]), 400, "invalid_grant")
    bench.clock.advance(REFRESH_S)
    assert left() == [0, 0, 0]


def test_a_client_ends_its_own_tokens_and_nobody_elses(bench, either):
    first, second = either.tokens(), either.tokens()
    other = partner(bench)

    def revoke(who: Partner, token: str, **more: str) -> httpx.Response:
        return who.post(paths.OAUTH_REVOKE, data=who.form(token=token, **more))

    for kind in ("access_token", "refresh_token"):
        refused(revoke(other, first[kind]), 400, "invalid_grant")
    assert either.call(first["access_token"]).status_code == 200
    answer = revoke(either, first["access_token"], token_type_hint="refresh_token")  # a hint may be wrong
    assert (answer.status_code, answer.json()) == (200, {})
    assert either.call(first["access_token"]).json()["error"] == "invalid_token"
    third = either.refresh(first["refresh_token"]).json()  # the access token alone is over
    assert revoke(either, third["refresh_token"]).status_code == 200
    assert either.call(third["access_token"]).json()["error"] == "invalid_token"
    refused(either.refresh(third["refresh_token"]), 400, "invalid_grant")
    assert either.call(second["access_token"]).status_code == 200
    for token in (third["refresh_token"], "unknown", "\0", "ü" * 5_000):
        assert revoke(either, token, token_type_hint="x").status_code == 200
    refused(revoke(either, ""), 400, "invalid_request")
    refused(either.post(paths.OAUTH_REVOKE, data={"token": "x"}), 401, "invalid_client")
    refused(either.post(paths.OAUTH_REVOKE, data=either.form(token="x", client_secret="wrong")), 401, "invalid_client")


def test_the_first_approval_makes_a_manufacturer_and_the_next_ones_keep_the_account(bench):
    bench.add_user("new@example.com", PASSWORD, has_account=False)
    made, another = partner(bench), partner(bench, public=True)
    bench.product()
    assert bench.http.post("/auth/signin", json={"email": "new@example.com", "password": PASSWORD}).status_code == 401
    assert len(rows(bench, "accounts")) == 1
    with ThreadPoolExecutor(10) as pool:
        codes = list(pool.map(lambda _: made.code("new@example.com"), range(AT_ONCE)))
    assert (len(set(codes)), len(rows(bench, "accounts"))) == (AT_ONCE, 2)
    headers = {"authorization": f"Bearer {made.exchange(codes[0]).json()['access_token']}"}
    with httpx.Client(base_url=bench.service.base_url, headers=headers, **BARE) as http:
        assert http.get("/products").json()["data"] == []  # an account of its own
        product_id = http.post("/products", json={"name": "mine"}).json()["product_id"]
    again = another.tokens(email="new@example.com")
    listed = another.call(again["access_token"]).json()["data"]
    assert [product["product_id"] for product in listed] == [product_id]
    assert len(rows(bench, "accounts")) == 2


def test_one_client_acts_for_each_user_in_that_users_account_only(bench):
    other = bench.add_account("other")
    bench.add_user("eve@example.com", PASSWORD, api_key=other.api_key)
    made, mine = partner(bench), bench.product()
    accounts = len(rows(bench, "accounts"))
    for email, products in ((EMAIL, [mine]), ("eve@example.com", [])):
        listed = made.call(made.tokens(email=email)["access_token"]).json()["data"]
        assert [product["product_id"] for product in listed] == products
    assert len(rows(bench, "accounts")) == accounts  # an account that is there is upgraded, not doubled


def test_resetting_one_account_takes_its_clients_with_all_that_was_given_to_them(bench):
    other = bench.add_account("other")
    bench.add_user("eve@example.com", PASSWORD, api_key=other.api_key)
    of_first, of_other = partner(bench), partner(bench, api_key=other.api_key)
    eve_to_first = of_first.tokens(email="eve@example.com")
    eve_to_other = of_other.tokens(email="eve@example.com")
    ada_to_other = of_other.tokens()
    pending = of_first.code(email="eve@example.com")
    assert bench.http.post("/_emulator/reset", params={"api_key": bench.service.api_key}).status_code == 204
    assert of_first.call(eve_to_first["access_token"]).json()["error"] == "invalid_token"
    refused(of_first.exchange(pending), 401, "invalid_client")
    refused(of_first.refresh(eve_to_first["refresh_token"]), 401, "invalid_client")
    assert of_other.call(ada_to_other["access_token"]).status_code == 401  # that user is gone
    assert of_other.call(eve_to_other["access_token"]).status_code == 200
    assert of_other.refresh(eve_to_other["refresh_token"]).status_code == 200


def test_a_full_reset_leaves_nothing_of_partners_and_no_account_without_keys(bench):
    bench.add_user("new@example.com", PASSWORD, has_account=False)
    made = partner(bench)
    token = made.tokens(email="new@example.com")["access_token"]
    assert bench.http.post("/_emulator/reset").status_code == 204
    assert made.call(token).json()["error"] == "invalid_token"
    left = {name: len(rows(bench, name)) for name in ("accounts", "people", "grants", "tokens", "authorization_codes")}
    assert left == {"accounts": 1, "people": 0, "grants": 0, "tokens": 0, "authorization_codes": 0}
    refused(made.exchange("any"), 401, "invalid_client")


def test_the_quota_counts_for_client_and_user_together():
    with running(rate_limit=3) as bench:
        bench.add_user(EMAIL, PASSWORD)
        bench.add_user("eve@example.com", PASSWORD)
        one, two = partner(bench), partner(bench)
        first, again = one.tokens(), one.tokens()
        statuses = [one.call(t["access_token"]).status_code for t in (first, again, first, again)]
        assert statuses == [200, 200, 200, 429]  # two grants of one pair share it
        assert two.call(two.tokens()["access_token"]).status_code == 200
        assert one.call(one.tokens(email="eve@example.com")["access_token"]).status_code == 200


def test_neither_codes_nor_tokens_nor_secrets_are_logged_or_on_the_disk_in_clear(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)

    def everything(bench: Bench) -> list[str]:
        made = partner(bench)
        code = made.code()
        first = made.exchange(code).json()
        second = made.refresh(first["refresh_token"]).json()
        made.call(second["access_token"])
        made.exchange(code)
        made.exchange(code, client_secret="wrong-secret")
        made.refresh("an-unknown-refresh-token")
        signed_in = bench.http.post(
            "/auth/signin", json={"email": EMAIL, "password": PASSWORD}, headers={"idempotency-key": "once"}
        ).json()
        pairs = [pair[name] for pair in (first, second, signed_in) for name in ("access_token", "refresh_token")]
        return [code, PASSWORD, made.secret, "an-unknown-refresh-token", *pairs]

    with running(data_dir=tmp_path) as bench:
        bench.add_user(EMAIL, PASSWORD)
        secrets = everything(bench)
        kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"scrypt$" in kept
    logged = "\n".join(record.getMessage() for record in caplog.records if not record.name.startswith("http"))
    assert [secret for secret in secrets if secret.encode() in kept or secret in logged] == []


def test_the_metadata_document_names_what_is_there(bench):
    told = httpx.get(bench.service.base_url + paths.OAUTH_METADATA, **BARE).json()
    base = bench.service.base_url
    assert told["issuer"] == base
    assert told["authorization_endpoint"] == f"{base}/partner-oauth-authorize"
    assert told["token_endpoint"] == f"{base}/functions/v1/partner-oauth-token"
    assert told["code_challenge_methods_supported"] == ["S256"]
    for name in ("token", "revocation"):
        assert httpx.post(told[f"{name}_endpoint"], **BARE).status_code == 400
    assert httpx.get(told["authorization_endpoint"], **BARE).status_code == 400
