"""Cookies, forms and waits of the pages, without any server."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.service import sessions as module
from simulator.service.oauth import pages
from simulator.service.passwords import OF_ACCOUNT, OF_ADDRESS, WINDOW_MS, Attempts
from simulator.service.sessions import ANSWERED_MS, FORM_MS, IDLE_MS, LONGEST_MS, Answered, Notice, Sessions

T0 = 1_767_225_600_000


def headers_of(sessions: Sessions, visitor) -> list[tuple[bytes, bytes]]:
    """What the browser sends once it has been given its cookie."""
    (_, value) = sessions.set_cookie(visitor)[0]
    return [(b"cookie", value.split(b";")[0])]


def signed_in(sessions: Sessions, now_ms: int = T0) -> list[tuple[bytes, bytes]]:
    return headers_of(sessions, sessions.sign_in(7, sessions.visitor([], now_ms), now_ms))


# --- cookies ----------------------------------------------------------------------------------------------------


def test_a_cookie_is_out_of_reach_for_scripts_and_for_forms_of_other_sites():
    sessions = Sessions(secure=False)
    _, value = sessions.set_cookie(sessions.visitor([], T0))[0]
    name, *attributes = value.decode().split("; ")
    assert name.startswith("device-service-session=")
    assert attributes == ["Path=/", "HttpOnly", "SameSite=Lax"]


def test_over_https_the_cookie_is_bound_to_host_and_https():
    sessions = Sessions(secure=True)
    _, value = sessions.set_cookie(sessions.visitor([], T0))[0]
    assert value.startswith(b"__Host-device-service-session=")
    assert value.endswith(b"; Path=/; HttpOnly; SameSite=Lax; Secure")


def test_a_browser_that_has_a_cookie_is_given_no_other_until_it_signs_in():
    sessions = Sessions(secure=False)
    first = sessions.visitor([], T0)
    again = sessions.visitor(headers_of(sessions, first), T0)
    assert again.cookie == first.cookie
    assert sessions.set_cookie(again) == ()
    after = sessions.sign_in(7, again, T0)
    assert after.is_new
    assert after.cookie != first.cookie


def test_a_cookie_that_somebody_planted_before_the_sign_in_opens_nothing_after_it():
    sessions = Sessions(secure=False)
    planted = [(b"cookie", b"device-service-session=planted")]
    sessions.sign_in(7, sessions.visitor(planted, T0), T0)
    assert sessions.visitor(planted, T0).session is None


def test_the_session_is_found_among_other_cookies():
    sessions = Sessions(secure=False)
    [(_, cookie)] = signed_in(sessions)
    visitor = sessions.visitor([(b"accept", b"*/*"), (b"cookie", b"a=1; " + cookie + b"; b=2")], T0)
    assert visitor.session is not None
    assert visitor.session.person_seq == 7


@pytest.mark.parametrize("cookie", [b"", b"=", b"device-service-session", b"device-service-session=", b"\xff=\xff"])
def test_a_cookie_that_is_none_of_ours_is_no_session(cookie):
    assert Sessions(secure=False).visitor([(b"cookie", cookie)], T0).is_new


def test_a_session_ends_after_an_hour_without_a_request():
    sessions = Sessions(secure=False)
    headers = signed_in(sessions)
    assert sessions.visitor(headers, T0 + IDLE_MS - 1).session is not None
    assert sessions.visitor(headers, T0 + 2 * IDLE_MS - 2).session is not None
    assert sessions.visitor(headers, T0 + 3 * IDLE_MS).session is None


def test_a_session_ends_after_twelve_hours_however_much_it_is_used():
    sessions = Sessions(secure=False)
    headers = signed_in(sessions)
    for now_ms in range(T0, T0 + LONGEST_MS, IDLE_MS // 2):
        assert sessions.visitor(headers, now_ms).session is not None
    assert sessions.visitor(headers, T0 + LONGEST_MS).session is None


def test_signing_out_ends_the_session_and_not_those_of_others():
    sessions = Sessions(secure=False)
    mine, other = signed_in(sessions), signed_in(sessions)
    sessions.sign_out(sessions.visitor(mine, T0))
    assert sessions.visitor(mine, T0).session is None
    assert sessions.visitor(other, T0).session is not None
    sessions.sign_out_everybody()
    assert sessions.visitor(other, T0).session is None


def test_only_so_many_sessions_are_kept_and_the_longest_unused_goes_first(monkeypatch):
    monkeypatch.setattr(module, "_SESSIONS", 2)
    sessions = Sessions(secure=False)
    first, second = signed_in(sessions), signed_in(sessions)
    sessions.visitor(first, T0)
    third = signed_in(sessions)
    assert [sessions.visitor(h, T0).session is not None for h in (first, second, third)] == [True, False, True]


# --- forms ------------------------------------------------------------------------------------------------------


def test_a_form_is_good_for_the_browser_and_the_page_that_it_was_made_for():
    sessions = Sessions(secure=False)
    me, other = sessions.visitor([], T0), sessions.visitor([], T0)
    csrf = sessions.make_csrf(me, "/page?a", T0)
    assert sessions.is_csrf(me, "/page?a", csrf, T0)
    assert not sessions.is_csrf(other, "/page?a", csrf, T0)
    assert not sessions.is_csrf(me, "/page?b", csrf, T0)
    assert not Sessions(secure=False).is_csrf(me, "/page?a", csrf, T0), "another start of the service"


def test_a_form_is_good_for_an_hour():
    sessions = Sessions(secure=False)
    me = sessions.visitor([], T0)
    csrf = sessions.make_csrf(me, "/page", T0)
    assert sessions.is_csrf(me, "/page", csrf, T0 + FORM_MS - 1)
    assert not sessions.is_csrf(me, "/page", csrf, T0 + FORM_MS)
    assert not sessions.is_csrf(me, "/page", csrf, T0 - 1), "a page of the future"


@given(offered=st.text(max_size=100))
def test_nobody_guesses_a_form(offered):
    sessions = Sessions(secure=False)
    assert not sessions.is_csrf(sessions.visitor([], T0), "/page", offered, T0)


# --- what is remembered for the next page -----------------------------------------------------------------------


def test_a_notice_is_shown_once_and_to_its_browser_only():
    sessions = Sessions(secure=False)
    me, other = sessions.visitor([], T0), sessions.visitor([], T0)
    sessions.show_next(me, Notice("good", "Done."))
    assert sessions.take_notice(other) is None
    assert sessions.take_notice(me) == Notice("good", "Done.")
    assert sessions.take_notice(me) is None


def test_an_answer_is_remembered_for_as_long_as_a_code_lives():
    sessions = Sessions(secure=False)
    session = sessions.sign_in(7, sessions.visitor([], T0), T0).session
    session.remember("/page", Answered(True, "https://partner.example/?code=c", T0))
    assert session.answered("/page", T0 + ANSWERED_MS - 1).approved
    assert session.answered("/page", T0 + ANSWERED_MS) is None
    assert session.answered("/other", T0) is None
    session.forget("/page")
    assert session.answered("/page", T0) is None


def test_codes_and_cookies_never_show_in_a_log():
    sessions = Sessions(secure=False)
    visitor = sessions.sign_in(7, sessions.visitor([], T0), T0)
    visitor.session.remember("/page", Answered(True, "https://partner.example/?code=c0de", T0))
    assert visitor.cookie not in repr(visitor)
    assert "c0de" not in repr(visitor)


# --- guessing passwords -----------------------------------------------------------------------------------------


def test_after_ten_wrong_passwords_an_account_waits_for_the_rest_of_the_window():
    attempts = Attempts()
    for n in range(OF_ACCOUNT):
        assert attempts.begin("ada@example.com", f"10.0.0.{n}", T0 + n) == 0
    assert attempts.begin("ada@example.com", "10.0.1.1", T0 + 1000) == (WINDOW_MS - 1000) // 1000
    assert attempts.begin("eve@example.com", "10.0.1.1", T0 + 1000) == 0
    assert attempts.begin("ada@example.com", "10.0.1.1", T0 + WINDOW_MS) == 0


def test_after_fifty_wrong_passwords_for_whichever_account_an_address_waits():
    attempts = Attempts()
    for n in range(OF_ADDRESS):
        assert attempts.begin(f"user{n}@example.com", "10.0.0.1", T0) == 0
    assert attempts.begin("ada@example.com", "10.0.0.1", T0) == WINDOW_MS // 1000
    assert attempts.begin("ada@example.com", "10.0.0.2", T0) == 0


def test_one_subscribers_ipv6_addresses_count_as_one():
    attempts = Attempts()
    for n in range(OF_ADDRESS):
        assert attempts.begin(f"user{n}@example.com", f"2001:db8:1:2::{n:x}", T0) == 0
    assert attempts.begin("ada@example.com", "2001:db8:1:2:ffff::1", T0) > 0
    assert attempts.begin("ada@example.com", "2001:db8:1:3::1", T0) == 0


def test_a_right_password_gives_the_account_a_new_beginning_and_the_address_this_try_back():
    attempts = Attempts()
    for _ in range(3 * OF_ADDRESS):
        assert attempts.begin("ada@example.com", "10.0.0.1", T0) == 0
        attempts.succeed("ada@example.com", "10.0.0.1", T0)


def test_a_clock_that_is_set_back_keeps_nobody_out():
    attempts = Attempts()
    for _ in range(OF_ACCOUNT):
        attempts.begin("ada@example.com", "10.0.0.1", T0)
    assert attempts.begin("ada@example.com", "10.0.0.1", T0 - 86_400_000) == 0


# --- colours ----------------------------------------------------------------------------------------------------


def palettes() -> dict[str, dict[str, str]]:
    """The colours of the style sheet, light and dark."""
    style = pages.static("pages.css").body.decode()
    light, dark = (
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", part)) for part in style.split("@media (prefers")[:2]
    )
    return {"light": light, "dark": light | dark}


def contrast(one: str, other: str) -> float:
    """Of two colours, 1 to 21 (WCAG 2.2, "contrast ratio")."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_controls_stand_out_from_what_is_behind_them(scheme):
    colour = palettes()[scheme]
    text = [(name, behind) for name in ("text", "quiet", "accent") for behind in ("ground", "card", "well")]
    text += [("on-accent", "accent"), ("on-accent", "accent-strong"), ("bad", "card")]
    text += [(name, f"{name}-ground") for name in ("bad", "good", "note")]
    assert {pair: ratio for pair in text if (ratio := contrast(colour[pair[0]], colour[pair[1]])) < 4.5} == {}
    edges = [("field", "card"), ("accent", "card"), ("accent", "ground")]
    assert {pair: ratio for pair in edges if (ratio := contrast(colour[pair[0]], colour[pair[1]])) < 3} == {}
