"""Invitations: what is kept of a code, and whom it enrolls."""

import asyncio
import json
import stat

import pytest

from agent.errors import ConfigurationError, TransportError
from agent.wire.enrollment import EnrollmentAnswer
from agent.wire.secret import Secret
from gateway.devices.enrolling import InviteTerms, invite
from gateway.devices.invite_file import (
    FILE_NAME,
    DeviceHasToken,
    EnrollmentRefused,
    InviteAccess,
    InviteFile,
    WantedByInvite,
)
from gateway.http.answers import Fault
from gateway.http.enrollment import REQUESTS, REQUESTS_PER_ADDRESS, Enrollment
from gateway.http.requests import HttpRequest

NOW_S = 1_790_000_000.0
DOOR = WantedByInvite(product_id="p1", user_id="me")
REACH = InviteAccess(url="http://127.0.0.1:8081")


def make(folder, *, randomness=bytes(range(8)), **terms):
    given = {"wanted": DOOR, "reach": REACH, "expires_s": 3600.0} | terms
    return invite(folder, InviteTerms(**given), None, NOW_S, lambda _count: randomness)


def claim(folder, code, identifier, now_s=NOW_S):
    with InviteFile(folder / FILE_NAME) as file:
        return file.claim(code.secret, identifier, now_s)


def test_only_a_hash_of_the_code_is_on_the_disk(tmp_path):
    code, _ = make(tmp_path)
    path = tmp_path / FILE_NAME
    assert code.secret.encode() not in path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_code_enrolls_one_device_and_the_same_one_again_when_its_answer_was_lost(tmp_path):
    code, _ = make(tmp_path)
    claim(tmp_path, code, "SN-1")
    claim(tmp_path, code, "SN-1")
    with pytest.raises(EnrollmentRefused, match="was used"):
        claim(tmp_path, code, "SN-2")


def test_a_fleet_code_enrolls_so_many_devices(tmp_path):
    code, _ = make(tmp_path, count=2)
    claim(tmp_path, code, "SN-1")
    claim(tmp_path, code, "SN-2")
    with pytest.raises(EnrollmentRefused, match="was used"):
        claim(tmp_path, code, "SN-3")


def test_an_expired_and_a_revoked_code_enroll_nobody_not_even_again(tmp_path):
    code, made = make(tmp_path, count=3)
    claim(tmp_path, code, "SN-1", NOW_S + 3599.9)
    for identifier in ("SN-1", "SN-2"):
        with pytest.raises(EnrollmentRefused, match="has expired"):
            claim(tmp_path, code, identifier, NOW_S + 3600.0)
    with InviteFile(tmp_path / FILE_NAME) as file:
        assert file.revoke(made.invite_id, NOW_S)
        assert not file.revoke(made.invite_id, NOW_S)
    with pytest.raises(EnrollmentRefused, match="was taken back"):
        claim(tmp_path, code, "SN-1")


def test_a_device_that_got_no_token_uses_nothing_up(tmp_path):
    code, _ = make(tmp_path)
    with InviteFile(tmp_path / FILE_NAME) as file:
        file.release(file.claim(code.secret, "SN-1", NOW_S)[0], "SN-1")
    claim(tmp_path, code, "SN-2")


def test_old_invitations_go_when_a_new_one_is_made(tmp_path):
    make(tmp_path, expires_s=60.0)
    with InviteFile(tmp_path / FILE_NAME) as file:
        assert len(file.invites()) == 1
    terms = InviteTerms(DOOR, REACH, 60.0)
    invite(tmp_path, terms, None, NOW_S + 8 * 86_400.0, lambda count: b"\x07" * count)
    with InviteFile(tmp_path / FILE_NAME) as file:
        assert len(file.invites()) == 1


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ({"wanted": WantedByInvite()}, "product_id, user_id is missing"),
        ({"wanted": WantedByInvite(product_id="p1")}, "user_id is missing"),
        ({"wanted": WantedByInvite(device_id="d1", product_id="p1")}, "are both here"),
        ({"wanted": WantedByInvite(device_id="d1"), "count": 2}, "--device-id is for one device"),
        ({"wanted": WantedByInvite(device_id="a\0b")}, "device id"),
    ],
)
def test_terms_that_contradict_each_other_make_no_code(tmp_path, terms, why):
    with pytest.raises(ConfigurationError, match=why):
        make(tmp_path, **terms)
    assert not (tmp_path / FILE_NAME).exists()


# --- the endpoint -----------------------------------------------------------------------------------------------------


def ask(enrollment, body=b'{"secret": "S", "device_identifier": "SN-1"}', *, method="POST", address="192.0.2.1"):
    async def receive():
        return {"type": "http.request", "body": body}

    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    scope = {"method": method, "raw_path": b"/enroll", "headers": headers, "client": (address, 1), "query_string": b""}
    return asyncio.run(enrollment.answer(HttpRequest(scope, receive)))


def enrolled(_request):
    return EnrollmentAnswer(device_id="d1", token=Secret("dat_x"), url="https://gateway:8443")


def raising(error):
    def enroll(_request):
        raise error

    return enroll


def test_a_device_that_enrolls_gets_all_that_it_needs():
    answer = ask(Enrollment(enrolled, lambda: 0.0))
    assert answer.status == 201
    assert json.loads(answer.body) == {
        "device_id": "d1",
        "token": "dat_x",
        "product_id": None,
        "url": "https://gateway:8443",
        "broker": None,
        "plain": False,
        "authority": None,
    }


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (EnrollmentRefused("this code was used"), 403, "enrollment_refused"),
        (DeviceHasToken("it holds a valid token"), 409, "device_has_token"),
        (TransportError("no answer"), 503, "service_unavailable"),
        (ConfigurationError(["tokens.db cannot be used"]), 503, "storage_unavailable"),
    ],
)
def test_what_fails_says_whether_the_code_is_still_good(error, status, code):
    with pytest.raises(Fault) as caught:
        ask(Enrollment(raising(error), lambda: 0.0))
    assert (caught.value.status, caught.value.error) == (status, code)
    assert status < 500 or "as good as before" in caught.value.message


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"secret": 1, "device_identifier": "a"}', b'{"secret": "a"}'])
def test_a_body_of_another_shape_is_refused_before_the_code_is_looked_at(body):
    with pytest.raises(Fault) as caught:
        ask(Enrollment(raising(AssertionError()), lambda: 0.0), body)
    assert caught.value.status == 400


def test_another_method_is_refused():
    with pytest.raises(Fault) as caught:
        ask(Enrollment(enrolled, lambda: 0.0), method="GET")
    assert caught.value.status == 405


def test_an_address_has_so_many_tries_a_minute_and_others_go_on():
    now_s = [0.0]
    enrollment = Enrollment(raising(EnrollmentRefused("unknown")), lambda: now_s[0])
    for _ in range(REQUESTS_PER_ADDRESS):
        with pytest.raises(Fault, match="403"):
            ask(enrollment)
    for _ in range(REQUESTS):  # and what is refused takes nothing of what all have together
        with pytest.raises(Fault, match="429") as caught:
            ask(enrollment)
    assert caught.value.headers == ((b"retry-after", b"60"),)
    with pytest.raises(Fault, match="403"):
        ask(enrollment, address="192.0.2.2")
    now_s[0] = 60.0
    with pytest.raises(Fault, match="403"):
        ask(enrollment)
