"""Links open once and for a while; sessions last for hours, are few, and belong to one host."""

from __future__ import annotations

import re

import pytest

from simulator.console.session_file import NAME, SessionFile
from simulator.console.sessions import LINK_S, LINKS_MAX, SESSION_S, SESSIONS_MAX, Sessions, is_csrf_of

HOST = "127.0.0.1:8080"


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions("console-8080", now_s=clock)


def headers(cookie: str | None, host: str = HOST) -> dict[bytes, bytes]:
    value = "" if cookie is None else cookie.partition(";")[0]
    return {b"host": host.encode(), b"cookie": f"other=1; {value}".encode()}


def test_a_link_opens_one_session_and_then_nothing(sessions):
    token = sessions.make_link()
    cookie = sessions.open(token, HOST)
    assert sessions.find(headers(cookie)) is not None
    assert sessions.open(token, HOST) is None


def test_a_token_and_a_session_have_at_least_160_random_bits(sessions):
    token = sessions.make_link()
    value = re.fullmatch(r"console-8080=([\w-]+);.*", sessions.open(token, HOST))[1]
    assert min(len(token), len(value)) * 6 >= 160
    assert value != token


def test_a_link_is_too_old_after_a_quarter_of_an_hour(sessions, clock):
    early, late = sessions.make_link(), sessions.make_link()
    clock.now_s += LINK_S
    assert sessions.open(early, HOST) is not None
    clock.now_s += 1
    assert sessions.open(late, HOST) is None


def test_a_session_ends_after_twelve_hours(sessions, clock):
    cookie = sessions.open(sessions.make_link(), HOST)
    clock.now_s += SESSION_S
    assert sessions.find(headers(cookie)) is not None
    clock.now_s += 1
    assert sessions.find(headers(cookie)) is None


def test_a_session_is_good_for_the_host_that_it_came_to_alone(sessions):
    cookie = sessions.open(sessions.make_link(), HOST)
    assert sessions.find(headers(cookie, "rebound.example:8080")) is None


def test_the_cookie_is_for_this_site_and_no_script_alone(sessions):
    cookie = sessions.open(sessions.make_link(), HOST)
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))


def test_the_oldest_session_makes_room_and_so_does_the_oldest_link(sessions):
    cookies = [sessions.open(sessions.make_link(), HOST) for _ in range(SESSIONS_MAX + 1)]
    assert sessions.find(headers(cookies[0])) is None
    assert all(sessions.find(headers(cookie)) for cookie in cookies[1:])
    tokens = [sessions.make_link() for _ in range(LINKS_MAX + 1)]
    assert sessions.open(tokens[0], HOST) is None
    assert sessions.open(tokens[1], HOST) is not None


def test_a_session_that_signed_out_is_over(sessions):
    cookie = sessions.open(sessions.make_link(), HOST)
    sessions.end(headers(cookie))
    assert sessions.find(headers(cookie)) is None


@pytest.mark.parametrize("cookie", [b"", b"console-8080=", b"console-8080=wrong", b"\xff=\xff;;;", b"console-8080"])
def test_other_cookies_are_no_session(sessions, cookie):
    assert sessions.find({b"host": HOST.encode(), b"cookie": cookie}) is None


def test_each_session_has_a_value_of_its_own_for_its_pages(sessions):
    one, other = (sessions.find(headers(sessions.open(sessions.make_link(), HOST))) for _ in range(2))
    assert is_csrf_of(one, one.csrf.encode())
    assert not is_csrf_of(one, other.csrf.encode())


# --- over a restart ---------------------------------------------------------------------------------------------


def test_a_session_in_a_data_folder_is_there_after_a_restart_with_the_same_value_for_its_pages(tmp_path, clock):
    before = Sessions("c", now_s=clock, file=SessionFile(tmp_path))
    cookie = before.open(before.make_link(), HOST)
    after = Sessions("c", now_s=clock, file=SessionFile(tmp_path))
    assert after.find(headers(cookie)) == before.find(headers(cookie)) is not None
    after.end(headers(cookie))
    assert Sessions("c", now_s=clock, file=SessionFile(tmp_path)).find(headers(cookie)) is None


def test_what_is_kept_opens_nothing_and_is_for_its_owner_alone(tmp_path, clock):
    sessions = Sessions("c", now_s=clock, file=SessionFile(tmp_path))
    cookie = sessions.open(sessions.make_link(), HOST)
    file = tmp_path / NAME
    assert file.stat().st_mode & 0o777 == 0o600
    value = re.fullmatch(r"c=([\w-]+);.*", cookie)[1]
    assert value not in file.read_text()
    assert sessions.find(headers(cookie)).csrf not in file.read_text()


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'[{"hash": "a"}]', b"\xff", b"{}", b"null"])
def test_a_file_that_cannot_be_read_holds_no_session_and_is_written_anew(tmp_path, clock, content):
    (tmp_path / NAME).write_bytes(content)
    sessions = Sessions("c", now_s=clock, file=SessionFile(tmp_path))
    cookie = sessions.open(sessions.make_link(), HOST)
    assert Sessions("c", now_s=clock, file=SessionFile(tmp_path)).find(headers(cookie)) is not None


def test_a_folder_that_takes_nothing_costs_the_sessions_of_the_next_start_alone(tmp_path, clock):
    sessions = Sessions("c", now_s=clock, file=SessionFile(tmp_path / "gone"))
    assert sessions.find(headers(sessions.open(sessions.make_link(), HOST))) is not None
