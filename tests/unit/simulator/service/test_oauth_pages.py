"""The pages of partner access as a browser without scripts meets them: forms, redirects, headers, refusals."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.wire.secret import Secret
from simulator.service.config import ServiceConfig
from simulator.service.core import scopes
from simulator.service.core.authorize import NAMES
from simulator.service.oauth import pages
from simulator.service.oauth.scope_texts import describe
from simulator.service.passwords import OF_ACCOUNT, WINDOW_MS
from simulator.service.server import RunningService
from simulator.service.sessions import ANSWERED_MS, FORM_MS, IDLE_MS
from tests.partner import Page, PlainBrowser, exchange_code, parameters_of, request_query
from tests.service_running import Bench, running

EMAIL, PASSWORD = "ada@example.com", "correct horse battery staple"
PARTNER = "https://partner.example/callback"
AUTHORIZE, ANSWER = "/partner-oauth-authorize", "/partner-oauth-answer"


@pytest.fixture(scope="module")
def module_bench():
    with running(public_url="http://127.0.0.1:8080") as bench:
        bench.service.add_user(EMAIL, PASSWORD)
        bench.service.add_user("new@example.com", PASSWORD, has_account=False)
        bench.service.add_client("Workshop Planner", [PARTNER], public=True, client_id="planner")
        yield bench


@pytest.fixture
def bench(module_bench):
    """A service at which nobody is signed in and nobody has to wait."""
    module_bench.service._service.attempts.clear()
    return module_bench


@pytest.fixture
def browser(bench):
    with PlainBrowser(bench.service.base_url) as browser:
        yield browser


def address(**changes: str | None) -> str:
    return f"{AUTHORIZE}?{request_query('planner', PARTNER, **changes)}"


def asked(page: Page) -> str:
    """The page that a form is on."""
    return page.action.replace(ANSWER, AUTHORIZE)


def exchange(bench: Bench, location: str):
    return exchange_code(bench.service.base_url, "planner", PARTNER, parameters_of(location)["code"])


# --- sign-in ----------------------------------------------------------------------------------------------------


def test_the_first_page_says_for_whom_one_signs_in(browser):
    page = browser.open(address())
    assert page.answer.status_code == 200
    assert page.answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "to go on to Workshop Planner" in page.text


def test_the_right_password_leads_to_consent_under_a_new_session(browser):
    before = browser.open(address())
    old = browser.http.cookies["device-service-session"]
    page = browser.sign_in(address(), EMAIL, PASSWORD)
    assert browser.http.cookies["device-service-session"] != old
    assert before.csrf != page.csrf
    assert f"Signed in as {EMAIL}" in page.text


@pytest.mark.parametrize(
    ("email", "password"),
    [
        (EMAIL, "wrong"),
        ("nobody@example.com", PASSWORD),
        ("nul\0@example.com", PASSWORD),
        ("a" * 5_000, PASSWORD),
        (EMAIL, "x" * 5_000),
        (EMAIL, ""),
    ],
    ids=["wrong password", "nobody", "NUL", "long email", "long password", "no password"],
)
def test_whatever_is_wrong_with_a_sign_in_the_page_says_the_same(browser, email, password):
    page = browser.sign_in(address(), email, password)
    assert "The email or the password is wrong." in page.text
    assert "Sign in to go on" in page.text
    assert "wrong" not in browser.open(address()).text, "the sentence is shown once"


def test_what_was_typed_as_email_need_not_be_typed_again(browser):
    assert f'value="{EMAIL}"' in browser.sign_in(address(), EMAIL, "wrong").answer.text
    escaped = browser.sign_in(address(), '"><script>alert(1)</script>', "wrong").answer.text
    assert "<script" not in escaped


def test_too_many_wrong_passwords_make_the_account_wait(bench, browser):
    for _ in range(OF_ACCOUNT):
        browser.sign_in(address(), EMAIL, "wrong")
    page = browser.open(address())
    answer = browser.send(page, "sign_in", email=EMAIL, password=PASSWORD)
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == str(WINDOW_MS // 1000)
    assert "Try again in 15 minutes" in answer.text
    assert "Back to sign-in" in answer.text
    bench.clock.advance(WINDOW_MS / 1000)
    assert f"Signed in as {EMAIL}" in browser.sign_in(address(), EMAIL, PASSWORD).text


def test_a_second_click_on_sign_in_leads_on(browser):
    page = browser.open(address())
    for _ in range(2):
        answer = browser.send(page, "sign_in", email=EMAIL, password=PASSWORD)
        assert answer.status_code == 303
    assert "Allow Workshop Planner" in browser.open(answer.headers["location"]).text


def test_somebody_else_can_sign_in_instead(browser):
    page = browser.sign_in(address(), EMAIL, PASSWORD)
    assert "Not you?" in page.text
    answer = browser.send(page, "switch")
    assert answer.status_code == 303
    assert "Sign in to go on" in browser.open(answer.headers["location"]).text
    assert "Signed in as new@example.com" in browser.sign_in(address(), "new@example.com", PASSWORD).text


# --- consent ----------------------------------------------------------------------------------------------------


def test_consent_says_what_each_scope_allows_and_where_one_goes_back_to(browser):
    page = browser.sign_in(address(scope="manufacturer:data manufacturer:rules"), EMAIL, PASSWORD)
    for text in describe(["manufacturer:data", "manufacturer:rules"]):
        assert f"{text.title} {text.sentence}" in page.text
    assert "Products" not in page.text
    assert "you go back to partner.example" in page.text


def test_every_scope_has_a_sentence_of_its_own():
    texts = describe(scopes.SCOPES)
    assert [text.name for text in texts] == list(scopes.SCOPES)
    assert len({text.sentence for text in texts}) == len(scopes.SCOPES)


def test_a_person_who_is_no_manufacturer_is_told_of_becoming_one_and_then_is_one(bench, browser):
    page = browser.sign_in(address(state="first"), "new@example.com", PASSWORD)
    assert "becomes a manufacturer account" in page.text
    assert exchange(bench, browser.send(page, "approve").headers["location"]).status_code == 200
    assert "becomes a manufacturer account" not in browser.open(address(state="second")).text
    assert "Manufacturer account" in browser.open("/account").text


def test_allowing_sends_code_state_and_issuer_to_the_partner(bench, browser):
    location = browser.approve(request_query("planner", PARTNER), EMAIL, PASSWORD)
    assert location.startswith(f"{PARTNER}?")
    came = parameters_of(location)
    assert came.keys() == {"code", "state", "iss"}
    assert (came["state"], came["iss"]) == ("the-state", "http://127.0.0.1:8080")
    assert exchange(bench, location).json()["scope"] == "manufacturer:products"


def test_not_allowing_sends_access_denied_as_often_as_one_clicks(browser):
    page = browser.sign_in(address(), EMAIL, PASSWORD)
    for _ in range(2):
        came = parameters_of(browser.send(page, "deny").headers["location"])
        assert (came["error"], came["state"]) == ("access_denied", "the-state")


def test_one_can_go_back_to_the_partner_without_signing_in(browser):
    came = parameters_of(browser.send(browser.open(address()), "deny").headers["location"])
    assert came["error"] == "access_denied"


# --- once, and once only ----------------------------------------------------------------------------------------


def test_a_second_click_on_allow_gets_the_same_code(bench, browser):
    page = browser.sign_in(address(), EMAIL, PASSWORD)
    first, second = (browser.send(page, "approve").headers["location"] for _ in range(2))
    assert first == second
    assert exchange(bench, first).status_code == 200


def test_clicks_at_the_same_time_get_the_same_code(bench, browser):
    page = browser.sign_in(address(), EMAIL, PASSWORD)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: browser.send(page, "approve"), range(8)))
    assert len({answer.headers["location"] for answer in answers}) == 1


def test_a_click_after_the_partner_has_used_the_code_does_not_send_it_again(bench, browser):
    page = browser.sign_in(address(), EMAIL, PASSWORD)
    token = exchange(bench, browser.send(page, "approve").headers["location"]).json()["access_token"]
    answer = browser.send(page, "approve")
    assert answer.headers["location"] == asked(page), "back to our own page"
    assert "You have already answered this" in browser.open(asked(page)).text
    headers = {"authorization": f"Bearer {token}"}
    assert browser.http.get("/products", headers=headers).status_code == 200


@pytest.mark.parametrize(("said", "shown"), [("approve", "You allowed"), ("deny", "You did not allow")])
def test_the_back_button_shows_that_it_was_answered_and_how_to_answer_anew(bench, browser, said, shown):
    page = browser.sign_in(address(), EMAIL, PASSWORD)
    browser.send(page, said)
    back = browser.open(address())
    assert "You have already answered this" in back.text
    assert shown in back.text
    answer = browser.send(back, "again")
    assert "Allow Workshop Planner" in browser.open(answer.headers["location"]).text


def test_an_answer_is_forgotten_when_its_code_is_over(bench, browser):
    page = browser.sign_in(address(), EMAIL, PASSWORD)
    browser.send(page, "approve")
    bench.clock.advance(ANSWERED_MS / 1000)
    assert "Allow Workshop Planner" in browser.open(address()).text


def test_not_allowing_what_was_allowed_before_says_how_to_take_it_back(browser):
    page = browser.sign_in(address(), EMAIL, PASSWORD)
    browser.send(page, "approve")
    answer = browser.send(page, "deny")
    assert answer.headers["location"] == asked(page)
    assert "See who may use my account" in browser.open(asked(page)).text


def test_another_request_of_the_same_partner_is_asked_anew(browser):
    page = browser.sign_in(address(), EMAIL, PASSWORD)
    browser.send(page, "approve")
    assert "Allow Workshop Planner" in browser.open(address(state="another")).text


# --- what is not believed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["approve", "deny", "switch", "again", "sign_in"])
def test_a_form_without_proof_changes_nothing_and_shows_how_to_begin_again(bench, browser, said):
    page = browser.sign_in(address(), EMAIL, PASSWORD)
    browser.send(page, "switch")
    page = browser.open(address())
    if said != "sign_in":
        page = browser.sign_in(address(), EMAIL, PASSWORD)
    page.csrf = ""
    answer = browser.send(page, said, email=EMAIL, password=PASSWORD)
    assert answer.status_code == 403
    assert "This page is too old" in answer.text
    assert f'href="{asked(page).replace("&", "&amp;")}"' in answer.text


def test_a_form_of_another_browser_is_not_taken(bench, browser):
    page = browser.sign_in(address(), EMAIL, PASSWORD)
    with PlainBrowser(bench.service.base_url) as other:
        mine = other.sign_in(address(), "new@example.com", PASSWORD)
        mine.csrf = page.csrf
        assert other.send(mine, "approve").status_code == 403


def test_a_form_of_one_request_does_not_answer_another(browser):
    page = browser.sign_in(address(scope="manufacturer:products"), EMAIL, PASSWORD)
    other = browser.open(address(scope="manufacturer:products manufacturer:commands"))
    other.csrf = page.csrf
    assert browser.send(other, "approve").status_code == 403


def test_a_page_that_was_open_for_an_hour_has_to_be_opened_anew(bench, browser):
    page = browser.sign_in(address(), EMAIL, PASSWORD)
    bench.clock.advance(FORM_MS / 1000)
    assert "This page is too old" in browser.send(page, "approve").text
    assert "Sign in to go on" in browser.open(asked(page)).text, "the session is over as well"


def test_a_session_that_ended_meanwhile_has_to_sign_in_again(bench, browser):
    page = browser.sign_in(address(), EMAIL, PASSWORD)
    bench.clock.advance(IDLE_MS / 1000)
    assert browser.send(page, "approve").status_code == 403
    assert "Sign in to go on" in browser.open(address()).text


def test_the_request_is_decided_anew_when_it_is_answered(browser):
    page = browser.sign_in(address(), EMAIL, PASSWORD)
    page.action = page.action.replace("partner.example", "evil.example")
    answer = browser.send(page, "approve")
    assert answer.status_code == 400
    assert "location" not in answer.headers


@pytest.mark.parametrize("said", ["", "unknown"])
def test_a_form_that_says_nothing_known_leads_back_to_its_page(browser, said):
    page = browser.sign_in(address(), EMAIL, PASSWORD)
    answer = browser.send(page, said)
    assert (answer.status_code, answer.headers["location"]) == (303, asked(page))


# What a hostile sender is likely to try, and anything else.
hostile = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["", "\0", "approve", "\r\nLocation: https://evil.example", "//evil.example", "'\"<>", "\U0001f600"]
    ),
    st.text(min_size=1, max_size=3).map(lambda part: part * 200),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    query=st.dictionaries(st.sampled_from(NAMES), hostile, max_size=7),
    form=st.dictionaries(st.sampled_from(["csrf", "answer", "email", "grant"]), hostile),
    path=st.sampled_from([ANSWER, "/account/sign-in", "/account/sign-out", "/account/revoke"]),
    keep=st.booleans(),
)
def test_whatever_is_sent_nobody_fails_and_nobody_is_sent_elsewhere(browser, query, form, path, keep):
    registered = {"client_id": "planner", "redirect_uri": PARTNER} if keep else {}
    answer = browser.http.post(path, params=query | registered, data=form)
    assert answer.status_code in {303, 400, 403, 414}
    location = answer.headers.get("location", "/account")
    assert location.startswith((f"{PARTNER}?", f"{AUTHORIZE}?")) or location == "/account"


def test_loading_the_address_of_a_form_leads_to_its_page_and_nowhere_else(browser):
    page = browser.open(address())
    answer = browser.http.get(page.action)
    assert (answer.status_code, answer.headers["location"]) == (303, asked(page))
    assert browser.http.get(f"{ANSWER}?client_id=nobody").status_code == 400
    for path in ("/account/sign-in", "/account/sign-out", "/account/revoke"):
        assert browser.http.get(path).headers["location"] == "/account"


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"csrf=%ff", 400), (b"&".join(b"a=1" for _ in range(60)), 400), (b"x" * 300_000, 413)],
    ids=["not UTF-8", "too many fields", "too large"],
)
def test_a_body_that_is_no_form_is_refused(browser, content, status):
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert (
        browser.http.post(ANSWER + address().removeprefix(AUTHORIZE), content=content, headers=headers).status_code
        == status
    )


# --- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "error"),
    [
        (request_query("nobody", PARTNER), "invalid_client"),
        (request_query("planner", "https://evil.example/"), "invalid_redirect_uri"),
        (request_query("planner", PARTNER) + "&client_id=planner", "invalid_client"),
        (request_query("planner", PARTNER) + "&redirect_uri=" + PARTNER, "invalid_redirect_uri"),
        ("client_id=%ff", "invalid_request"),
        ("", "invalid_client"),
    ],
)
def test_who_cannot_be_trusted_gets_a_page_or_a_json_body_and_nobody_is_sent_anywhere(browser, query, error):
    page = browser.http.get(f"{AUTHORIZE}?{query}", headers={"x-request-id": "reference-1"})
    assert page.status_code == 400
    assert "location" not in page.headers
    assert "This link does not work" in page.text
    assert f"<code>{error}</code>" in page.text
    assert "reference-1" in page.text
    body = browser.http.get(f"{AUTHORIZE}?{query}", headers={"accept": "application/json"})
    assert body.status_code == 400
    assert body.json()["error"] == error
    assert body.json()["message"]


def test_other_faults_go_to_the_partner(browser):
    answer = browser.http.get(address(code_challenge_method="plain"))
    assert answer.status_code == 303
    came = parameters_of(answer.headers["location"])
    assert (came["error"], came["state"]) == ("invalid_request", "the-state")


def test_names_and_states_with_markup_are_shown_as_text(bench, browser):
    bench.service.add_client("<b>Bold</b> & 'co'", ["https://bold.example/?a='b'"], public=True, client_id="bold")
    query = request_query("bold", "https://bold.example/?a='b'", state="\"'<script>alert(1)</script>")
    page = browser.sign_in(f"{AUTHORIZE}?{query}", EMAIL, PASSWORD)
    assert "<script" not in page.answer.text
    assert "<b>" not in page.answer.text
    location = browser.send(page, "approve").headers["location"]
    assert parameters_of(location)["state"] == "\"'<script>alert(1)</script>"


# --- headers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [address(), f"{AUTHORIZE}?client_id=nobody", "/account", "/playground"])
def test_every_page_keeps_itself_to_itself(browser, path):
    headers = browser.http.get(path).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["style-src"] == "'self'"
    assert policy.get("script-src", "'self'") == "'self'"
    assert ("script-src" in policy) == (path == "/playground")
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers


def test_redirects_are_not_kept_and_tell_the_partner_no_address(browser):
    page = browser.sign_in(address(), EMAIL, PASSWORD)
    headers = browser.send(page, "approve").headers
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"


def test_other_peoples_pages_cannot_read_these(bench, browser):
    bench.service.add_client("Spa", ["https://spa.example/cb"], public=True, client_id="spa")
    for path in (address(), "/account", "/playground"):
        answer = browser.http.get(path, headers={"origin": "https://spa.example"})
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("redirect_uri", "targets"),
    [
        ("https://partner.example/cb", "https:"),
        ("http://127.0.0.1:9000/cb", "http://127.0.0.1:* http://localhost:*"),
        ("http://localhost/cb", "http://127.0.0.1:* http://localhost:*"),
        ("http://[::1]:9000/cb", "http:"),
        ("com.example.app:/cb", "com.example.app:"),
    ],
)
def test_forms_may_lead_to_the_partner_and_nowhere_else(redirect_uri, targets):
    policy = pages.make_policy(redirect_uri).decode()
    assert f"form-action 'self' {targets}; " in policy
    assert "form-action 'self'; " in pages.make_policy().decode()


def test_a_partners_picture_is_the_only_thing_that_comes_from_elsewhere(bench, browser):
    uri, logo = "https://pictured.example/cb", "https://pictures.example/logo.png"
    bench.service.add_client("Pictured", [uri], public=True, client_id="pictured", logo_url=logo)
    page = browser.sign_in(f"{AUTHORIZE}?{request_query('pictured', uri)}", EMAIL, PASSWORD)
    assert f'<img src="{logo}" alt="" referrerpolicy="no-referrer">' in page.answer.text
    assert "img-src 'self' https://pictures.example;" in page.answer.headers["content-security-policy"]


def test_behind_https_and_under_a_path_links_and_cookie_are_right():
    with running(public_url="https://devices.example/api") as bench, PlainBrowser(bench.service.base_url) as browser:
        bench.service.add_client("Workshop Planner", [PARTNER], public=True, client_id="planner")
        page = browser.open(address())
        assert page.action.startswith(f"/api{ANSWER}?")
        assert 'href="/api/oauth/static/pages.css"' in page.answer.text
        assert page.answer.headers["set-cookie"].startswith("__Host-device-service-session=")
        assert page.answer.headers["set-cookie"].endswith("; Path=/; HttpOnly; SameSite=Lax; Secure")
        revoked = browser.http.post("/account/revoke", data={"grant": "x"})
        assert revoked.headers["location"] == "/api/account"


def test_the_files_of_the_pages_are_served(browser):
    for name in pages.STATIC_NAMES:
        answer = browser.http.get(f"/oauth/static/{name}")
        assert answer.status_code == 200
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert browser.http.get("/oauth/static/other").status_code == 401


# --- the account page -------------------------------------------------------------------------------------------


def test_the_account_page_shows_what_was_allowed_and_takes_it_back(bench, browser):
    page = browser.sign_in(address(), EMAIL, PASSWORD)
    token = exchange(bench, browser.send(page, "approve").headers["location"]).json()["access_token"]
    account = browser.open("/account")
    assert EMAIL in account.text
    assert "Workshop Planner" in account.text
    assert "1 January 2026" in account.text
    grant_id = account.answer.text.split('name="grant" value="')[1].split('"')[0]
    account.action = "/account/revoke"
    answer = browser.send(account, grant=grant_id)
    assert (answer.status_code, answer.headers["location"]) == (303, "/account")
    assert "Workshop Planner may not use your account any more." in browser.open("/account").text
    with PlainBrowser(bench.service.base_url) as partner:
        used = partner.http.get("/products", headers={"authorization": f"Bearer {token}"})
        assert (used.status_code, used.json()["error"]) == (401, "invalid_token")
    answer = browser.send(account, grant=grant_id)
    assert "That had already ended" in browser.open("/account").text


def test_whoever_signed_in_over_the_api_stands_on_the_account_page_too(bench, browser):
    tokens = bench.http.post("/auth/signin", json={"email": EMAIL, "password": PASSWORD}).json()
    account = browser.sign_in("/account", EMAIL, PASSWORD)
    assert "Sign-in with a password" in account.text
    section = account.answer.text.split("Sign-in with a password")[1]
    account.action = "/account/revoke"
    browser.send(account, grant=section.split('name="grant" value="')[1].split('"')[0])
    headers = {"authorization": f"Bearer {tokens['access_token']}"}
    assert browser.http.get("/products", headers=headers).status_code == 401


def test_an_application_on_the_device_is_no_web_address(bench, browser):
    uri = "com.example.planner:/callback"
    bench.service.add_client("Planner for phones", [uri], public=True, client_id="phone")
    page = browser.sign_in(f"{AUTHORIZE}?{request_query('phone', uri)}", EMAIL, PASSWORD)
    assert "you go back to its app on this device" in page.text
    assert browser.send(page, "approve").headers["location"].startswith(f"{uri}?code=")


def test_nobody_revokes_what_somebody_else_allowed(bench, browser):
    page = browser.sign_in(address(), EMAIL, PASSWORD)
    token = exchange(bench, browser.send(page, "approve").headers["location"]).json()["access_token"]
    grant_id = browser.open("/account").answer.text.split('name="grant" value="')[1].split('"')[0]
    with PlainBrowser(bench.service.base_url) as other:
        account = other.sign_in("/account", "new@example.com", PASSWORD)
        account.action = "/account/revoke"
        assert other.send(account, grant=grant_id).status_code == 303
        headers = {"authorization": f"Bearer {token}"}
        assert other.http.get("/products", headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/account/revoke", "/account/sign-out", "/account/sign-in"])
def test_the_forms_of_the_account_page_need_proof(browser, path):
    page = browser.open("/account") if path.endswith("sign-in") else browser.sign_in("/account", EMAIL, PASSWORD)
    page.action, page.csrf = path, "0.00"
    answer = browser.send(page, grant="x", email=EMAIL, password=PASSWORD)
    assert answer.status_code == 403
    assert "This page is too old" in answer.text


def test_signing_out_ends_the_session(browser):
    page = browser.sign_in("/account", EMAIL, PASSWORD)
    stolen = dict(browser.http.cookies)
    page.action = "/account/sign-out"
    assert browser.send(page).headers["location"] == "/account"
    assert "You are signed out." in browser.open("/account").text
    browser.http.cookies.clear()
    browser.http.cookies.update(stolen)
    assert "Sign in to your account" in browser.open("/account").text


def test_a_reset_signs_everybody_out():
    with running() as bench, PlainBrowser(bench.service.base_url) as browser:
        bench.service.add_user(EMAIL, PASSWORD)
        assert "Your account" in browser.sign_in("/account", EMAIL, PASSWORD).text
        assert bench.http.post("/_emulator/reset").status_code < 300
        assert "Sign in to your account" in browser.open("/account").text
        query = request_query("playground", f"{bench.service.base_url}/playground")
        assert browser.open(f"{AUTHORIZE}?{query}").answer.status_code == 200, "the playground is there still"


# --- the playground ---------------------------------------------------------------------------------------------


def test_the_playground_is_off_with_the_control_paths():
    with running(control=False) as bench, PlainBrowser(bench.service.base_url) as browser:
        assert browser.http.get("/playground").status_code == 404
        query = request_query("playground", f"{bench.service.base_url}/playground")
        assert browser.open(f"{AUTHORIZE}?{query}").answer.status_code == 400


def test_the_playground_is_not_there_where_no_partner_may_be():
    with running(public_url="http://devices.example") as bench, PlainBrowser(bench.service.base_url) as browser:
        assert browser.http.get("/playground").status_code == 404


def test_a_client_of_another_account_that_has_its_name_keeps_the_playground_away(tmp_path):
    config = ServiceConfig(data_dir=tmp_path, control=False, api_key="mk_a", secret_key=Secret("msk_a"))
    with RunningService(config) as service:
        other = service.add_account("other")
        service.add_client("Taken", [PARTNER], client_id="playground", public=True, api_key=other.api_key)
    with (
        RunningService(dataclasses.replace(config, control=True)) as service,
        PlainBrowser(service.base_url) as browser,
    ):
        assert browser.http.get("/playground").status_code == 404
        assert "Taken" in browser.open(f"{AUTHORIZE}?{request_query('playground', PARTNER)}").text
