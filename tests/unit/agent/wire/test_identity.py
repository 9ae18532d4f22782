from __future__ import annotations

import pytest

from agent.wire.identity import Identity, PageVerdict, is_page, is_proof

PATH = "/v1/devices/d1/commands/c1/result"
PAGE = b"<!DOCTYPE html><html><body><pre>Cannot POST /v1/devices/d1/commands/c1/result</pre></body></html>"


def test_a_page_is_doubtful_until_it_is_proved_and_then_meant_for_an_hour():
    identity = Identity()
    assert identity.judge("POST", PATH, 404, PAGE, 0.0) is PageVerdict.DOUBTFUL
    identity.proved("POST", PATH, 404, PAGE, 0.0)
    assert identity.judge("POST", PATH, 404, PAGE, 3599.0) is PageVerdict.MEANT
    assert identity.judge("POST", PATH, 404, PAGE, 3600.0) is PageVerdict.DOUBTFUL


def test_the_same_page_that_names_another_id_is_the_same_page_and_another_one_is_not():
    identity = Identity()
    identity.proved("POST", PATH, 404, PAGE, 0.0)
    other = PATH.replace("c1", "c2")
    assert identity.judge("POST", other, 404, PAGE.replace(b"c1", b"c2"), 1.0) is PageVerdict.MEANT
    assert identity.judge("POST", PATH, 404, b"<html>Sign in</html>", 1.0) is PageVerdict.DOUBTFUL
    assert identity.judge("POST", PATH, 200, PAGE, 1.0) is PageVerdict.DOUBTFUL


@pytest.mark.parametrize("status", [200, 201, 204])
def test_a_page_where_the_same_kind_of_request_had_something_else_is_foreign(status):
    identity = Identity()
    identity.note("POST", PATH, status)
    assert identity.judge("POST", PATH.replace("c1", "c2"), 200, PAGE, 0.0) is PageVerdict.FOREIGN
    assert identity.judge("POST", PATH, 404, PAGE, 0.0) is PageVerdict.DOUBTFUL
    assert identity.judge("POST", "/v1/sensor-data", 200, PAGE, 0.0) is PageVerdict.DOUBTFUL


def test_a_good_page_that_answers_a_reading_request_is_always_foreign():
    assert Identity().judge("GET", "/v1/devices", 200, PAGE, 0.0) is PageVerdict.FOREIGN


def test_proofs_are_asked_for_at_a_bounded_rate():
    identity = Identity()
    for number in range(8):
        assert identity.may_ask(number / 10)
        identity.asked(number / 10, good=True)
    assert [identity.may_ask(now_s) for now_s in (0.8, 9.9, 10.0)] == [False, False, True]
    identity.asked(10.0, good=False)
    assert [identity.may_ask(now_s) for now_s in (69.9, 70.0)] == [False, True]


def test_memory_is_bounded_whatever_is_asked():
    identity = Identity()
    for n in range(1000):
        identity.note("POST", "/devices", n)
        identity.proved("POST", "/devices", n, PAGE, 0.0)
    assert len(identity._without_page) <= 256
    assert len(identity._own_pages) <= 256


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("text/html", b"", False),
        ("text/html", b" \r\n", False),
        ("text/html", b"OK", True),
        ("", b"\xef\xbb\xbf <html>", True),
        ("application/json", b"<html>", True),
        ("text/plain", b"OK", False),
        ("application/json", b"{}", False),
    ],
)
def test_a_page_is_told_by_its_type_or_its_beginning(content_type, body, expected):
    assert is_page(content_type, body) is expected


@pytest.mark.parametrize(
    ("status", "content_type", "body", "expected"),
    [
        (200, "application/json", b"[]", True),
        (401, "", b'{"error":"x"}', True),
        (200, "application/json", b"\x1f\x8b", True),
        (302, "application/json", b"{}", False),
        (200, "text/html", b"[]", False),
        (200, "application/json", b"<html>", False),
        (200, "text/plain", b"OK", False),
        (200, "", b"", False),
    ],
)
def test_only_json_proves_the_service(status, content_type, body, expected):
    assert is_proof(status, content_type, body) is expected
