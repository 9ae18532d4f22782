"""Sign-in, and what its token opens."""

from __future__ import annotations

import httpx
import pytest

from tests.api.golden_bodies import golden
from tests.api.oauth import partner, rows
from tests.support.service_running import Bench, client, running

EMAIL = "ada@example.com"
PASSWORD = "made-up-password"


@pytest.fixture
def bench():
    with running() as bench:
        bench.add_user(EMAIL, PASSWORD, user_id="user-0001")
        yield bench


def sign_in(http: httpx.Client, email: str = EMAIL, password: str = PASSWORD) -> httpx.Response:
    return http.post("/auth/signin", json={"email": email, "password": password})


def signed_in(bench: Bench) -> httpx.Client:
    return bare(bench, authorization=f"Bearer {sign_in(bench.http).json()['access_token']}")


def bare(bench: Bench, **headers: str) -> httpx.Client:
    return httpx.Client(base_url=bench.service.base_url, headers=headers, trust_env=False, timeout=120)


def test_signing_in_answers_tokens_and_who_it_is(bench):
    answer = sign_in(bench.http, " Ada@EXAMPLE.com ")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    body, expected = answer.json(), golden("sign_in_answer")
    assert set(body) == set(expected)
    assert (body["token_type"], body["expires_in"]) == ("Bearer", 3600)
    assert body["user"] == {"user_id": "user-0001", "email": EMAIL}
    assert expected["scope"] in body["scope"].split()
    assert bench.http.get("/onboarding/user/user-0001/devices").json()["data"] == []  # a user before the first device
    again = bench.http.post(
        "/auth/signin", json={"email": EMAIL, "password": PASSWORD}, headers={"idempotency-key": "once"}
    )
    repeated = bench.http.post(
        "/auth/signin", json={"email": EMAIL, "password": PASSWORD}, headers={"idempotency-key": "once"}
    )
    made = {one.json()[kind] for one in (answer, again, repeated) for kind in ("access_token", "refresh_token")}
    assert len(made) == 6  # no answer with a token is kept to be replayed


def test_a_wrong_email_and_a_wrong_password_look_the_same(bench):
    other = bench.add_account("other")
    bench.add_user("theirs@example.com", PASSWORD, api_key=other.api_key)
    pairs = [
        (EMAIL, "wrong"),
        (EMAIL, ""),
        (EMAIL, PASSWORD + " "),
        ("nobody@example.com", PASSWORD),
        ("theirs@example.com", PASSWORD),  # of the account with the other keys
        ("' OR 1=1 --", PASSWORD),
        ("x" * 100_000, "y" * 100_000),
    ]
    answers = [sign_in(bench.http, *pair) for pair in pairs]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.text for answer in answers}) == 1
    assert answers[0].json()["error"] == "invalid_credentials"
    assert "www-authenticate" in answers[0].headers
    assert rows(bench, "tokens") == []


@pytest.mark.parametrize(
    ("user", "sentence"),
    [
        ({"email": "nobody", "password": "x"}, "no email address"),
        ({"email": "a@b\0", "password": "x"}, "cannot"),
        ({"email": "a@b", "password": ""}, "password must have"),
        ({"email": "a@b", "password": "x" * 1_025}, "password must have"),
        ({"email": "a@b", "password": "x", "user_id": "\n"}, "user_id"),
    ],
)
def test_a_person_that_cannot_be_is_refused_with_a_sentence(bench, user, sentence):
    answer = bench.http.post("/_emulator/seed", json={"users": [user]})
    assert (answer.status_code, sentence in answer.text) == (400, True), answer.text


def test_an_address_is_one_persons_in_any_case_on_the_whole_service(bench):
    other = bench.add_account("other")
    for email, user_id in ((EMAIL.upper(), None), ("other@example.com", "user-0001")):
        user = {"email": email, "password": "x", "user_id": user_id}
        answer = bench.http.post("/_emulator/seed", json={"users": [user]}, params={"api_key": other.api_key})
        assert (answer.status_code, "there is a person" in answer.text) == (400, True), answer.text


def test_a_person_who_is_deleted_while_the_password_is_checked_does_not_sign_in(bench, monkeypatch):
    def reset_and_agree(*_: str) -> bool:
        assert httpx.post(f"{bench.service.base_url}/_emulator/reset", trust_env=False).status_code == 204
        return True

    monkeypatch.setattr("simulator.service.oauth.passwords.is_password", reset_and_agree)
    answer = sign_in(bench.http)
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_credentials")


def test_the_token_opens_the_api_of_its_account_for_an_hour_of_the_services_clock(bench):
    product_id = bench.product()
    other = bench.add_account("other")
    with signed_in(bench) as http, client(bench.service, other.api_key, other.secret_key) as theirs:
        theirs.post("/products", json={"name": "theirs"})
        assert [product["product_id"] for product in http.get("/products").json()["data"]] == [product_id]
        device_id = bench.device(product_id)
        for method, path, body, status in (
            ("PUT", f"/products/{product_id}/dashboard", {"name": "x"}, 200),
            ("POST", f"/products/{product_id}/database/schemas", {"name": "x"}, 201),
            ("GET", "/database/runtime-data", None, 200),
            ("POST", "/sensor-data", {"device_id": device_id, "sensor_data": {"t": 1}}, 201),
            ("GET", "/devices", None, 200),
            ("GET", "/rules", None, 200),
            ("GET", "/analytics/devices", None, 200),
            ("POST", "/commands/send", {"device_id": device_id, "command_payload": {}}, 202),
            ("DELETE", f"/onboarding/device/{device_id}", None, 204),
            ("GET", "/nowhere", None, 404),
            ("PATCH", "/products", None, 405),
            ("POST", "/auth/signin", {"email": EMAIL, "password": PASSWORD}, 403),
        ):
            assert http.request(method, path, json=body).status_code == status, (method, path)
        bench.clock.advance(3599.999)
        assert http.get("/products").status_code == 200
        bench.clock.advance(0.001)
        expect_invalid(http.get("/products"))


def expect_invalid(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_token")
    assert answer.headers["www-authenticate"].startswith("Bearer ")
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]


def test_a_token_that_is_none_is_401_invalid_token(bench):
    made = sign_in(bench.http).json()
    token = made["access_token"]
    with bare(bench) as http:
        for value in (made["refresh_token"], token[:-1], token + " x", "' OR 1=1 --", "\xff", "x" * 8_000):
            expect_invalid(http.get("/products", headers={"authorization": b"Bearer " + value.encode("latin-1")}))
        assert http.get("/products", headers={"authorization": f"bEARER  {token}"}).status_code == 200


def test_both_keys_win_and_one_alone_is_401(bench):
    keys = {"x-api-key": bench.service.api_key, "x-secret-key": bench.service.secret_key.reveal()}
    with signed_in(bench) as http:
        assert http.get("/products", headers={**keys, "authorization": "Bearer none"}).status_code == 200
        wrong = http.get("/products", headers={**keys, "x-secret-key": "msk_wrong"})
        assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid_credentials")
        for name, value in keys.items():
            answer = http.get("/products", headers={name: value})
            assert (answer.status_code, answer.json()["error"]) == (401, "missing_credentials")
            assert answer.headers["www-authenticate"].startswith("ApiKey ")
    with bare(bench, authorization="Basic YTpi") as http:
        assert http.get("/products").json()["error"] == "missing_credentials"


def test_a_token_that_lacks_the_scope_is_403_and_says_which(bench):
    made = partner(bench, scopes=["manufacturer:data"])
    token = made.tokens(scope="manufacturer:data")["access_token"]
    assert made.call(token, "/sensor-data").status_code == 200
    answer = made.call(token)
    assert (answer.status_code, answer.json()["error"]) == (403, "insufficient_scope")
    assert 'error="insufficient_scope", scope="manufacturer:products"' in answer.headers["www-authenticate"]


def test_the_quota_counts_for_the_tokens_user_and_invalid_tokens_cost_nobody_anything():
    with running(rate_limit=4) as bench:
        bench.add_user(EMAIL, PASSWORD)
        with signed_in(bench) as first, signed_in(bench) as second, bare(bench, authorization="Bearer none") as none:
            statuses = [http.get("/products").status_code for http in (first, second, none, first, second, first)]
            assert statuses == [200, 200, 401, 200, 200, 429]
            assert bench.http.get("/products").status_code == 200  # the key pair has a count of its own
