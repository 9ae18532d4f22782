"""Bearer tokens that renew themselves: against a service that rotates and punishes reuse, with hand-moved clocks."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest

from agent.errors import Advice, ServiceError, SignInEnded, TokensNotStored, Unauthorized, UnexpectedAnswer
from agent.wire import paths
from agent.wire.device_client import DeviceClient
from agent.wire.refreshing import RefreshingBearer, is_refusal
from agent.wire.secret import Secret
from agent.wire.sensor_data import PostSensorData
from agent.wire.token_keeper import MARGIN_S
from agent.wire.tokens import TokenSet, parse_token_set, token_set_text
from tests.fakes import FakeClock

BASE = "https://service.test/v1"
HOUR_S = 3600


class RotatingService(httpx.BaseTransport):
    """The service's side: one valid pair; a refresh token that comes again ends everything."""

    def __init__(self):
        self.lock = threading.Lock()
        self.number = 1
        self.access, self.refresh = "at-canary-1", "rt-canary-1"
        self.refreshes = 0
        self.api_calls: list[str | None] = []
        self.is_ended = False
        self.before_token_answer = lambda: None
        self.token_answers: list[httpx.Response | Exception] = []
        self.rotates = True
        self.always_refuses = False

    def handle_request(self, request):
        with self.lock:
            if request.url.path == f"/v1{paths.OAUTH_TOKEN}":
                return self.token(json.loads(request.read()))
            self.api_calls.append(request.headers.get("authorization"))
            if self.always_refuses or self.is_ended or self.api_calls[-1] != f"Bearer {self.access}":
                return httpx.Response(
                    401,
                    headers={"WWW-Authenticate": 'Bearer realm="x", error="invalid_token"'},
                    json={"error": "invalid_token", "message": "over"},
                )
            return httpx.Response(200, json={"extensions": ["made-up"]})

    def token(self, body):
        self.refreshes += 1
        assert body["grant_type"] == "refresh_token"
        self.last_body = body
        self.before_token_answer()
        if self.token_answers:
            answer = self.token_answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        if self.is_ended or body["refresh_token"] != self.refresh:
            self.is_ended = True
            return httpx.Response(400, json={"error": "invalid_grant", "error_description": "used already"})
        return httpx.Response(200, json=self.next_pair())

    def next_pair(self):
        self.number += 1
        self.access = f"at-canary-{self.number}"
        pair = {"access_token": self.access, "token_type": "Bearer", "expires_in": HOUR_S}
        if self.rotates:
            self.refresh = f"rt-canary-{self.number}"
            pair["refresh_token"] = self.refresh
        return pair


class MemoryStore:
    """The port, in memory. ``full`` refuses before anything is asked, ``broken`` when it is too late."""

    name = "token.json"

    def __init__(self, tokens: TokenSet):
        self.tokens: TokenSet | None = tokens
        self.number = 0
        self.lock = threading.Lock()
        self.written: list[TokenSet] = []
        self.full = self.broken = False

    def put(self, tokens):
        self.tokens = tokens
        self.number += 1

    def version(self):
        return self.number

    def read(self):
        if self.tokens is None:
            raise SignInEnded("there is no token file")
        return self.tokens

    @contextlib.contextmanager
    def exclusive(self):
        with self.lock:
            yield

    def reserve(self):
        if self.full:
            raise TokensNotStored("the disk is full")

    def write(self, tokens):
        assert self.lock.locked()
        if self.broken:
            raise TokensNotStored("the disk broke")
        self.written.append(tokens)
        self.put(tokens)


class Rig:
    def __init__(self, **members):
        self.clock = FakeClock()
        self.service = RotatingService()
        now_s = self.clock.now().wall_s
        first = TokenSet(BASE, "app", Secret("at-canary-1"), Secret("rt-canary-1"), issued_at=now_s)
        self.store = MemoryStore(replace(first, **{"expires_at": now_s + HOUR_S, **members}))

    def bearer(self, **arguments):
        return RefreshingBearer(
            self.store,
            transport=self.service,
            monotonic=lambda: self.clock.now().monotonic_s,
            wall=lambda: self.clock.now().wall_s,
            **arguments,
        )

    def client(self, **arguments):
        return DeviceClient(BASE, self.bearer(**arguments), transport=self.service)


@pytest.fixture
def rig():
    return Rig()


def revoke_access(service):
    service.access = "something else"


def test_a_refused_token_is_renewed_once_stored_and_the_request_repeated_once(rig):
    revoke_access(rig.service)
    with rig.client() as client:
        assert client.discover() == {"made-up"}
        assert client.discover() == {"made-up"}
    assert rig.service.refreshes == 1
    assert rig.service.api_calls == ["Bearer at-canary-1", "Bearer at-canary-2", "Bearer at-canary-2"]
    assert [tokens.refresh_token for tokens in rig.store.written] == [Secret("rt-canary-2")]
    assert rig.store.written[0].expires_at == rig.clock.now().wall_s + HOUR_S


def test_the_new_pair_is_stored_before_the_first_request_goes_out_with_it(rig):
    seen = []
    revoke_access(rig.service)
    bearer = rig.bearer()

    class Watching(httpx.BaseTransport):
        def handle_request(self, request):
            seen.append((request.headers["authorization"], [t.access_token.reveal() for t in rig.store.written]))
            return rig.service.handle_request(request)

    with DeviceClient(BASE, bearer, transport=Watching()) as client:
        client.discover()
    assert seen == [("Bearer at-canary-1", []), ("Bearer at-canary-2", ["at-canary-2"])]


def test_a_service_that_refuses_new_tokens_too_gets_one_refresh_and_one_repeat(rig):
    rig.service.always_refuses = True
    with rig.client() as client:
        for _ in range(5):
            with pytest.raises(Unauthorized, match="invalid_token"):
                client.discover()
        assert rig.service.refreshes == 1
        assert len(rig.service.api_calls) == 2 + 4
        rig.clock.advance(120)  # not for ever either: what was wrong may be right by now
        rig.service.always_refuses = False
        revoke_access(rig.service)
        assert client.discover() == {"made-up"}
    assert rig.service.refreshes == 2


def test_a_good_token_that_is_revoked_soon_after_is_renewed_all_the_same(rig):
    with rig.client() as client:
        for number in (1, 2, 3):
            revoke_access(rig.service)
            client.discover()
            assert rig.service.refreshes == number


def test_tokens_are_renewed_ahead_of_their_end_and_not_earlier(rig):
    with rig.client() as client:
        rig.clock.advance(HOUR_S - MARGIN_S - 1)
        client.discover()
        assert rig.service.refreshes == 0
        rig.clock.advance(2)
        client.discover()
        client.discover()
    assert rig.service.refreshes == 1
    assert rig.service.api_calls[1:] == ["Bearer at-canary-2"] * 2


def test_a_short_life_is_used_for_three_quarters_and_not_renewed_at_every_request():
    rig = Rig(expires_at=FakeClock().now().wall_s + 20)
    with rig.client() as client:
        rig.clock.advance(14)
        client.discover()
        assert rig.service.refreshes == 0
        rig.clock.advance(2)
        client.discover()
        assert rig.service.refreshes == 1


@pytest.mark.parametrize("offset_s", [-50 * 365 * 86400, -HOUR_S, 7200, 10 * 365 * 86400])
def test_a_wall_clock_that_is_wrong_costs_one_early_refresh_at_most(rig, offset_s):
    rig.clock.set_wall(rig.clock.now().wall_s + offset_s)
    with rig.client() as client:
        for _ in range(3):
            client.discover()
        rig.clock.set_wall(rig.clock.now().wall_s - 2 * offset_s)
        for _ in range(3):
            client.discover()
        assert rig.service.refreshes == (1 if offset_s > 0 else 0)
        revoke_access(rig.service)  # whatever the clocks say: the service's word counts
        client.discover()
    assert rig.service.refreshes <= 2
    assert not rig.service.is_ended


def test_a_refresh_ahead_that_fails_leaves_the_old_token_in_use_and_is_not_tried_at_every_request(rig):
    rig.clock.advance(HOUR_S - 30)
    rig.service.token_answers = [httpx.ConnectError("no network")]
    with rig.client() as client:
        for _ in range(3):
            assert client.discover() == {"made-up"}
        assert rig.service.refreshes == 1
        rig.clock.advance(11)
        client.discover()
    assert rig.service.refreshes == 2
    assert rig.service.api_calls[-1] == "Bearer at-canary-2"


@pytest.mark.parametrize(
    "fault",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.Response(503, json={"error": "busy"}),
        httpx.Response(429, json={"error": "rate_limit_exceeded"}, headers={"Retry-After": "7"}),
        httpx.Response(200, text="<html>sign in to the network</html>", headers={"Content-Type": "text/html"}),
        httpx.Response(302, headers={"Location": "https://evil.test/"}),
        httpx.Response(200, json={"token_type": "mac", "access_token": "at-canary-9"}),
    ],
)
def test_a_refresh_that_got_no_answer_is_tried_again_and_nothing_is_lost(rig, fault):
    revoke_access(rig.service)
    rig.service.token_answers = [fault]
    with rig.client() as client:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - its advice is what matters
            client.discover()
        assert caught.value.advice is Advice.RETRY
        assert rig.store.written == []
        assert client.discover() == {"made-up"}
    assert rig.service.refreshes == 2


def test_an_ended_sign_in_says_how_to_sign_in_and_asks_nobody_until_somebody_has(rig):
    rig.service.is_ended = True
    with rig.client() as client:
        with pytest.raises(SignInEnded, match="fleet-simulator login --out token.json") as caught:
            client.discover()
        assert caught.value.advice is Advice.REAUTHENTICATE
        assert isinstance(caught.value, Unauthorized)
        with pytest.raises(SignInEnded):
            client.discover()
        assert (rig.service.refreshes, len(rig.service.api_calls)) == (1, 1)

        rig.service.is_ended = False
        rig.service.next_pair()
        new = replace(rig.store.read(), access_token=Secret("at-canary-2"), refresh_token=Secret("rt-canary-2"))
        rig.store.put(new)
        assert client.discover() == {"made-up"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (httpx.Response(401, json={"error": "invalid_client"}), "file with the client secret"),
        (httpx.Response(400, json={"error": "unauthorized_client"}), "check client_id"),
        (httpx.Response(404, json={"error": "not_found"}), "base_url"),
        (httpx.Response(403, json={"error": "forbidden"}), "check client_id"),
    ],
)
def test_another_refusal_of_the_token_endpoint_is_never_taken_for_one_of_the_request(rig, answer, words):
    """A reading must not be set aside because the token endpoint answered 404."""
    revoke_access(rig.service)
    rig.service.token_answers = [answer]
    with rig.client() as client:
        with pytest.raises(Unauthorized, match=words) as caught:
            client.discover()
        assert not isinstance(caught.value, SignInEnded)
        assert client.discover() == {"made-up"}


def test_without_a_refresh_token_the_end_is_the_end():
    rig = Rig(refresh_token=None)
    revoke_access(rig.service)
    rig.clock.advance(2 * HOUR_S)
    with rig.client() as client, pytest.raises(SignInEnded, match="no refresh token"):
        client.discover()
    assert rig.service.refreshes == 0


def test_a_service_that_does_not_rotate_leaves_the_refresh_token_as_it_was(rig):
    rig.service.rotates = False
    revoke_access(rig.service)
    with rig.client() as client:
        client.discover()
    assert rig.store.written[0].refresh_token == Secret("rt-canary-1")


def test_a_confidential_client_sends_its_secret_with_the_refresh_only(rig):
    revoke_access(rig.service)
    with rig.client(client_secret=Secret("cs-canary")) as client:
        client.discover()
    assert rig.service.last_body == {
        "grant_type": "refresh_token",
        "refresh_token": "rt-canary-1",
        "client_id": "app",
        "client_secret": "cs-canary",
    }


def test_fifty_threads_that_are_refused_at_once_refresh_once(rig):
    revoke_access(rig.service)
    start = threading.Barrier(50)
    with rig.client() as client, ThreadPoolExecutor(50) as pool:

        def one(_):
            start.wait(30)
            return client.discover()

        assert list(pool.map(one, range(50))) == [{"made-up"}] * 50
    assert rig.service.refreshes == 1
    assert not rig.service.is_ended


def test_fifty_threads_learn_of_an_ended_sign_in_by_one_refresh(rig):
    rig.service.is_ended = True
    with rig.client() as client, ThreadPoolExecutor(20) as pool:

        def one(_):
            with pytest.raises(SignInEnded):
                client.discover()

        list(pool.map(one, range(50)))
    assert rig.service.refreshes == 1


def test_what_another_process_renewed_is_taken_over_without_asking(rig):
    with rig.client() as client:
        client.discover()
        pair = rig.service.next_pair()
        renewed = Secret(pair["access_token"]), Secret(pair["refresh_token"])
        rig.store.put(replace(rig.store.read(), access_token=renewed[0], refresh_token=renewed[1]))
        client.discover()
    assert rig.service.refreshes == 0


def test_what_another_process_renews_while_we_wait_for_the_lock_is_taken_over(rig):
    """The file changes after we looked and before we hold the lock."""
    revoke_access(rig.service)
    enter = rig.store.exclusive

    @contextlib.contextmanager
    def after_the_other():
        with enter():
            pair = rig.service.next_pair()
            new = Secret(pair["access_token"]), Secret(pair["refresh_token"])
            rig.store.put(replace(rig.store.read(), access_token=new[0], refresh_token=new[1]))
            yield

    rig.store.exclusive = after_the_other
    with rig.client() as client:
        assert client.discover() == {"made-up"}
    assert rig.service.refreshes == 0


def test_a_disk_that_takes_nothing_is_found_before_the_old_pair_is_given_up(rig):
    rig.store.full = True
    rig.clock.advance(HOUR_S - 10)
    with rig.client() as client:
        client.discover()  # due, cannot be renewed, still good
        revoke_access(rig.service)
        with pytest.raises(TokensNotStored) as caught:
            client.discover()
        assert caught.value.advice is Advice.RETRY
        assert rig.service.refreshes == 0
        rig.store.full = False
        assert client.discover() == {"made-up"}
    assert rig.service.refreshes == 1


def test_a_pair_that_cannot_be_written_is_not_used_and_not_lost(rig):
    rig.store.broken = True
    revoke_access(rig.service)
    bearer = rig.bearer()
    with DeviceClient(BASE, bearer, transport=rig.service) as client:
        for _ in range(3):
            with pytest.raises(TokensNotStored, match="the disk broke"):
                client.discover()
        assert rig.service.api_calls == ["Bearer at-canary-1"]
        assert "canary" not in bearer.redact("at-canary-2 rt-canary-2 at-canary-1")
        rig.store.broken = False
        assert client.discover() == {"made-up"}
    assert rig.service.refreshes == 1
    assert rig.store.read().refresh_token == Secret("rt-canary-2")


def test_a_new_sign_in_takes_the_place_of_a_pair_that_could_not_be_written(rig):
    rig.store.broken = True
    revoke_access(rig.service)
    with rig.client() as client:
        with pytest.raises(TokensNotStored):
            client.discover()
        rig.service.next_pair()
        rig.store.put(replace(rig.store.read(), access_token=Secret("at-canary-3")))
        assert client.discover() == {"made-up"}
    assert rig.service.refreshes == 1


def test_tokens_go_to_their_origin_only():
    rig = Rig(base_url="https://other.test")
    with rig.client() as client, pytest.raises(SignInEnded, match="holds tokens for https://other.test"):
        client.discover()
    assert rig.service.api_calls == []


def test_a_request_to_another_origin_gets_no_token(rig):
    bearer = rig.bearer().bound_to(httpx.URL(BASE))
    flow = bearer.auth_flow(httpx.Request("GET", "https://evil.test/v1/devices"))
    assert "authorization" not in next(flow).headers
    with pytest.raises(StopIteration):
        flow.send(httpx.Response(401))
    assert rig.service.refreshes == 0


def test_a_token_endpoint_of_another_origin_is_never_asked():
    rig = Rig(token_endpoint="https://evil.test/token")
    revoke_access(rig.service)
    with rig.client() as client, pytest.raises(Unauthorized, match=r"evil\.test is not the host"):
        client.discover()
    assert rig.service.refreshes == 0


def test_no_token_is_in_a_log_a_repr_or_a_traceback(rig, caplog):
    caplog.set_level(logging.DEBUG)
    shown = []
    revoke_access(rig.service)
    rig.service.token_answers = [
        httpx.ConnectError("rt-canary-1 refused"),
        httpx.Response(500, json={"error": "x", "message": "rt-canary-1 and cs-canary fell over"}),
        httpx.Response(400, json={"error": "odd", "message": "rt-canary-1 is odd"}),
        httpx.Response(400, json={"error": "invalid_grant", "message": "rt-canary-1 is over"}),
    ]
    bearer = rig.bearer(client_secret=Secret("cs-canary"))
    with DeviceClient(BASE, bearer, transport=rig.service) as client:
        for _ in range(4):
            try:
                client.discover()
            except ServiceError as error:
                shown += [*traceback.format_exception(error), repr(error), str(error)]
        shown += [repr(bearer), repr(client), repr(rig.store.read()), repr(rig.store.read().renewed)]
    text = "".join(shown) + caplog.text
    assert "invalid_grant" in text
    lines = [line for line in text.splitlines() if "canary" in line]
    assert not lines, lines


def test_a_writing_request_is_repeated_with_the_same_body(rig):
    sent = []

    class Watching(httpx.BaseTransport):
        def handle_request(self, request):
            sent.append(request.read())
            answer = rig.service.handle_request(request)
            return httpx.Response(201, json={"id": "1"}) if answer.status_code == 200 else answer

    revoke_access(rig.service)
    with DeviceClient(BASE, rig.bearer(), transport=Watching()) as client:
        client.post_sensor_data(PostSensorData(device_id="d-1", sensor_data={"t": 21.5}))
    assert len(sent) == 2
    assert sent[0] == sent[1] != b""


def test_the_body_of_a_refusal_is_not_read_before_the_repeat(rig):
    class Endless(httpx.SyncByteStream):
        is_open = True

        def __iter__(self):
            raise AssertionError("somebody reads it")

        def close(self):
            self.is_open = False

    body = Endless()

    class Watching(httpx.BaseTransport):
        def handle_request(self, request):
            answer = rig.service.handle_request(request)
            if answer.status_code == 401:
                return httpx.Response(401, headers={"Content-Encoding": "gzip"}, stream=body)
            return answer

    revoke_access(rig.service)
    with DeviceClient(BASE, rig.bearer(), transport=Watching()) as client:
        assert client.discover() == {"made-up"}
    assert not body.is_open


@pytest.mark.parametrize("expires_in", [None, 0, -5, 10**18])
def test_a_life_that_makes_no_sense_causes_no_storm_and_no_loss(rig, expires_in):
    answer = {"access_token": "at-canary-2", "refresh_token": "rt-canary-2", "expires_in": expires_in}
    rig.service.token_answers = [httpx.Response(200, json=answer)]
    rig.service.access = "at-canary-2"
    with rig.client() as client:
        for _ in range(5):
            client.discover()
    assert rig.service.refreshes == 1
    assert parse_token_set(token_set_text(rig.store.read())).access_token == Secret("at-canary-2")


@pytest.mark.parametrize("token", ["", "two words", "line\nend", "\u00e4", "\ud800"])
def test_a_token_that_cannot_be_sent_is_no_answer(rig, token):
    revoke_access(rig.service)
    raw = json.dumps({"access_token": token, "refresh_token": "rt"}).encode()
    rig.service.token_answers = [httpx.Response(200, content=raw, headers={"Content-Type": "application/json"})]
    with rig.client() as client, pytest.raises(UnexpectedAnswer):
        client.discover()
    assert rig.store.written == []


@pytest.mark.parametrize(
    ("status", "challenge", "is_one"),
    [
        (401, 'Bearer realm="x", error="invalid_token"', True),
        (401, 'ApiKey realm="x", Bearer error="invalid_token"', True),
        (401, None, True),
        (401, "Bearer", True),
        (401, 'ApiKey realm="device-service"', False),
        (401, 'Basic realm="proxy"', False),
        (401, 'Bearer error="invalid_request"', False),
        (403, 'Bearer error="insufficient_scope"', False),
        (400, None, False),
    ],
)
def test_which_answers_are_about_the_token(status, challenge, is_one):
    headers = {} if challenge is None else {"WWW-Authenticate": challenge}
    assert is_refusal(httpx.Response(status, headers=headers)) is is_one
