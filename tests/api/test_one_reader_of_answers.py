"""The real agent's client and a fleet's virtual device judge every answer alike."""

from __future__ import annotations

from itertools import product

import httpx
import pytest

from agent.core.outbox import is_refused_for_good
from agent.errors import ServiceError
from agent.wire.client import DeviceClient
from agent.wire.models import PostSensorData
from agent.wire.secret import KeyPair, Secret
from simulator.fleet.device.http_messages import read_settled
from simulator.fleet.engine.http_answers import HttpAnswer

STATUSES = (200, 201, 202, 204, 302, 400, 401, 403, 404, 405, 409, 413, 422, 429, 500, 503)
BODIES = (
    b"",
    b"{}",
    b"[]",
    b'{"id":"r1"}',
    b'{"success":true,"data":{"id":7}}',
    b'{"error":"no","message":"because"}',
    b'{"id":"r',
    b"OK",
    b"<html><body>Sign in</body></html>",
)
TYPES = ("application/json", "text/plain", "text/html", None)
READING = PostSensorData(device_id="d1", sensor_data={"t": 1.0})


def verdict(error: ServiceError | None) -> str:
    if error is None:
        return "accepted"
    return "refused" if is_refused_for_good(error) else "retry"


def headers_of(kind: str | None) -> dict[str, str]:
    return {} if kind is None else {"content-type": kind}


class AnswersOnce:
    """A server whose next answer is set; what is asked beside shows that a web page is the service's own.

    A fleet takes each page for that: it knows which server it loads.
    """

    def __init__(self) -> None:
        self.next: httpx.Response | None = None

    def __call__(self, _request: httpx.Request) -> httpx.Response:
        answer, self.next = self.next, None
        return httpx.Response(200, json=[]) if answer is None else answer


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_an_answer_to_a_reading_means_the_same_to_both(kind):
    differing = []
    server = AnswersOnce()
    client = DeviceClient("https://service", KeyPair("mk_a", Secret("msk_a")), transport=httpx.MockTransport(server))
    for status, body in product(STATUSES, BODIES):
        agents: ServiceError | None = None
        fleets: ServiceError | None = None
        server.next = httpx.Response(status, headers=headers_of(kind), content=body)
        try:
            client.post_sensor_data(READING)
        except ServiceError as error:
            agents = error
        try:
            pairs = [(name.encode(), value.encode()) for name, value in headers_of(kind).items()]
            assert read_settled(HttpAnswer(status, pairs, body), (1,)) == ({}, None)
        except ServiceError as error:
            fleets = error
        if (verdict(agents), type(agents)) != (verdict(fleets), type(fleets)):
            differing.append((status, body, agents, fleets))
    assert differing == []
