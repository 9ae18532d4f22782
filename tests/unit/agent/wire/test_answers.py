"""What the client makes of answers; the transport is replaced, the client is the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count
from typing import Any

import httpx
import pytest

from agent.errors import (
    Advice,
    Conflict,
    ErrorAnswer,
    Forbidden,
    NotFound,
    RateLimited,
    Refused,
    ServerFault,
    ServiceError,
    StillRunning,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
)
from agent.wire.answers import read_retry_after
from agent.wire.client import Connection
from agent.wire.models import CommandResult, NewRuntimeRecord, PostSensorData
from agent.wire.secret import KeyPair, Secret
from simulator.wire.client import ServiceClient
from simulator.wire.models import NewProduct

HTML = b"<!DOCTYPE html><html><body>Please sign in</body></html>"
SECRET = "msk_made_up"


def client_of(
    answer: httpx.Response | Callable[[httpx.Request], httpx.Response],
    base_url: str = "http://service.test",
    **more: Any,
) -> ServiceClient:
    handle = answer if callable(answer) else lambda request: answer
    return ServiceClient(base_url, KeyPair("mk_a", Secret(SECRET)), transport=httpx.MockTransport(handle), **more)


def error_of(answer: httpx.Response | Callable[[httpx.Request], httpx.Response], **more: Any) -> ServiceError:
    with client_of(answer, **more) as client, pytest.raises(ServiceError) as caught:
        list(client.devices())
    text = str(caught.value)
    assert "\n" not in text
    assert SECRET not in text
    assert caught.value.__cause__ is None
    return caught.value


def streamed(chunks: Iterator[bytes] | list[bytes], **headers: str) -> httpx.Response:
    return httpx.Response(
        200, content=iter(chunks), headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


# --- not the service --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 400, 403, 404, 409, 410])
@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/json", ""])
def test_a_captive_portal_is_named_with_its_cure_and_nothing_is_dropped_on_its_account(status, kind):
    error = error_of(httpx.Response(status, content=HTML, headers={"Content-Type": kind}))
    assert isinstance(error, UnexpectedAnswer)
    assert error.status == status
    assert error.advice is Advice.RETRY
    assert "captive portal" in str(error)
    assert "base_url" in str(error)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, Unauthorized), (413, Refused), (429, RateLimited), (502, ServerFault), (511, ServerFault)],
)
def test_a_proxys_page_with_a_status_that_proxies_send_keeps_its_meaning(status, kind):
    error = error_of(httpx.Response(status, content=HTML, headers={"Content-Type": "text/html"}))
    assert type(error) is kind
    assert "<" not in str(error)


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_its_host_is_named(status):
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(status, headers={"Location": "https://user:pw@login.portal.test/?token=hidden"})

    error = error_of(handle)
    assert isinstance(error, UnexpectedAnswer)
    assert "login.portal.test" in str(error)
    assert "hidden" not in str(error)
    assert "pw" not in str(error)
    assert asked == ["service.test"]


@pytest.mark.parametrize("body", [b'{"data": [', b'{"data": [{"device_id": "d"', b"OK", b"\xff\xfe", b"[" * 100_000])
def test_truncated_or_broken_json_is_told(body):
    error = error_of(httpx.Response(200, content=body))
    assert isinstance(error, UnexpectedAnswer)
    assert "broken JSON" in str(error)


# --- size and speed ---------------------------------------------------------------------------------------------


def test_an_answer_beyond_the_cap_is_not_read_on():
    read: list[int] = []

    def chunks() -> Iterator[bytes]:
        for index in count():
            read.append(index)
            yield b" " * 1000

    error = error_of(streamed(chunks()), max_answer_bytes=10_000)
    assert "larger than 10000 bytes" in str(error)
    assert len(read) == 11


def test_an_error_keeps_its_status_when_its_body_cannot_be_read():
    answer = httpx.Response(503, content=iter([b"x" * 2000]), headers={"Retry-After": "7"})
    error = error_of(answer, max_answer_bytes=1000)
    assert isinstance(error, ServerFault)
    assert error.retry_after_s == 7


def test_an_answer_that_drips_is_cut_off():
    now = iter([0.0, 1.0, 59.0, 61.0, 62.0])
    handle = httpx.MockTransport(lambda request: streamed(iter([b"[", b"1", b",", b"2", b"]"])))
    with (
        Connection("http://service.test", transport=handle, monotonic=lambda: next(now)) as connection,
        pytest.raises(UnexpectedAnswer, match="too slowly"),
    ):
        connection.request("GET", "/devices")


# --- the service's errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"not json", b'{"x": 1}', b'{"error": 5}'])
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 418, 429, 500, 503, 599])
def test_an_error_without_a_proper_body_is_still_its_class_and_says_something(status, body):
    error = error_of(httpx.Response(status, content=body))
    assert isinstance(error, ErrorAnswer)
    assert error.status == status
    assert len(str(error)) > 10


def test_a_request_that_still_runs_is_no_conflict_and_is_asked_for_again():
    told = {"error": "idempotency_key_in_use", "message": "A request with this Idempotency-Key still runs."}
    error = error_of(httpx.Response(409, json=told, headers={"retry-after": "1"}))
    assert isinstance(error, StillRunning)
    assert (error.advice, error.retry_after_s) == (Advice.RETRY, 1.0)
    other = error_of(httpx.Response(409, json={"error": "command_queue_full"}))
    assert isinstance(other, Conflict)
    assert other.advice is Advice.DROP


def test_a_secret_that_the_service_repeats_is_masked():
    body = {"error": f"bad {SECRET}", "message": f"the key {SECRET} is unknown", "details": [{"field": SECRET}]}
    error = error_of(httpx.Response(400, json=body))
    assert SECRET not in f"{error.__dict__} {error!r}"


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"Retry-After": "12"}, 12),
        ({"Retry-After": " 0 "}, 0),
        ({"Retry-After": "99999999999999999999"}, 86_400),
        ({"Retry-After": "Thu, 01 Jan 2026 00:01:00 GMT", "Date": "Thu, 01 Jan 2026 00:00:00 GMT"}, 60),
        ({"Retry-After": "Thu, 01 Jan 2026 00:00:00 GMT", "Date": "Thu, 01 Jan 2026 00:01:00 GMT"}, 0),
        ({"Retry-After": "Thu, 01 Jan 2026 00:00:05 GMT"}, None),  # after what? this machine's clock may be wrong
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "²"}, None),
        ({}, None),
    ],
)
def test_the_wait_that_the_service_asks_for_is_read_in_all_its_forms(headers, wait_s):
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert read_retry_after(httpx.Headers(encoded)) == wait_s


# --- no answer --------------------------------------------------------------------------------------------------

EXCEPTIONS = [
    item
    for name in httpx.__all__
    if isinstance(item := getattr(httpx, name), type) and issubclass(item, Exception)
    if item is not httpx.HTTPStatusError  # its raise_for_status is not called
]


def make(kind: type[Exception]) -> Exception:
    try:
        return kind(f"it says {SECRET}\nhere")
    except TypeError:
        return kind()


@pytest.mark.parametrize("kind", EXCEPTIONS, ids=lambda kind: kind.__name__)
def test_everything_that_httpx_raises_becomes_a_transport_error_of_ours(kind):
    def handle(request: httpx.Request) -> httpx.Response:
        raise make(kind)

    error = error_of(handle)
    assert isinstance(error, TransportError)
    assert "http://service.test" in str(error)
    # What httpx raised holds the request, and so the keys: a traceback or a report must not reach it.
    assert error.__context__ is None


# --- good answers -----------------------------------------------------------------------------------------------

READING = PostSensorData(device_id="d", sensor_data={"t": 1})
RECORD = NewRuntimeRecord(product_id="p", device_id="d", table_name="command_results", data_payload={"command_id": "c"})


WRITES = (
    lambda client: client.report_result("d", "c", CommandResult(status="succeeded")),
    lambda client: client.post_sensor_data(READING),
    lambda client: client.create_runtime_record(RECORD),
)
BODIES = (b"", b"null", b'{"data":{"id":"7"}}', b'[{"id":"7"},{"id":"8"}]', b'{"sensor_data":"ok"}', b"OK", b'{"id":"7')


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
@pytest.mark.parametrize("body", BODIES)
def test_any_2xx_means_that_what_was_sent_is_taken_whatever_its_body(status, body):
    for call in WRITES:
        with client_of(httpx.Response(status, content=body)) as client:
            call(client)


@pytest.mark.parametrize(
    "body",
    [
        {"product": {"product_id": "p", "name": "x"}},
        {"data": {"productId": "p", "name": "x"}},
        {"success": True, "data": [{"id": "p", "name": "x"}]},
        [{"product_id": "p", "name": "x"}],
        {"product_id": "p", "name": "x", "data": {"product_id": "other"}},
    ],
)
def test_a_record_is_found_bare_and_in_envelopes(body):
    with client_of(httpx.Response(201, json=body)) as client:
        product = client.create_product(NewProduct(name="x"))
    assert (product.product_id, product.name) == ("p", "x")


PAGE = {"content": HTML, "headers": {"Content-Type": "text/html"}}
CERTAIN = ("https://service.test", "http://127.0.0.1:9")


@pytest.mark.parametrize("base_url", CERTAIN)
@pytest.mark.parametrize(
    ("status", "kind"), [(200, None), (404, NotFound), (403, Forbidden), (400, Refused), (405, Refused)]
)
def test_a_page_of_a_service_whose_name_is_certain_means_its_status(base_url, status, kind):
    for call in WRITES:
        taken = nullcontext() if kind is None else pytest.raises(kind)
        with client_of(httpx.Response(status, **PAGE), base_url=base_url) as client, taken:
            call(client)


@pytest.mark.parametrize("base_url", ["http://service.test", *CERTAIN])
def test_a_list_is_never_taken_from_a_page(base_url):
    with (
        client_of(httpx.Response(200, **PAGE), base_url=base_url) as client,
        pytest.raises(UnexpectedAnswer, match="captive portal"),
    ):
        client.device_commands("d")


@pytest.mark.parametrize(
    ("body", "accepted"),
    [(b"", 2), (b"OK", 2), (b'{"accepted":"many"}', 2), (b'{"inserted":2}', 2), (b'{"inserted":1,"errors":["x"]}', 0)],
)
def test_a_batch_is_taken_by_a_2xx_unless_its_body_mentions_errors_that_cannot_be_read(body, accepted):
    with client_of(httpx.Response(200, content=body)) as client:
        assert client.post_sensor_data_batch([READING, READING]).accepted == accepted


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (httpx.Response(200, json={"extensions": ["long-poll", "new-one", 5]}), {"long-poll", "new-one"}),
        (httpx.Response(200, json={"extensions": "long-poll"}), set()),
        (httpx.Response(200, json=[]), set()),
        (httpx.Response(404, json={"error": "not_found"}), set()),
        (httpx.Response(404, content=HTML, headers={"Content-Type": "text/html"}), set()),
        (httpx.Response(403, json={"error": "forbidden"}), set()),
        (httpx.Response(400, text="no"), set()),
        (httpx.Response(501, content=HTML), set()),
        (httpx.Response(204), set()),
    ],
)
def test_a_plain_server_has_no_extensions(answer, names):
    with client_of(answer) as client:
        assert client.discover().extensions == names


@pytest.mark.parametrize("status", [500, 502, 503, 511, 401, 429, 408, 302])
def test_a_status_that_says_nothing_of_the_path_leaves_the_extensions_unknown(status):
    with client_of(httpx.Response(status, content=HTML)) as client, pytest.raises(ServiceError):
        client.discover()
