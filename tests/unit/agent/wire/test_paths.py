from __future__ import annotations

from urllib.parse import unquote

import httpx
import pytest

from agent.errors import InvalidMessage
from simulator.wire import paths
from simulator.wire.client import ServiceClient


@pytest.mark.parametrize(
    "device_id", ["a/b", "..", ".", "a?b=c", "a#b", "a%2Fb", "ü", " ", "a+b", "../../products", ";a", "a\\b"]
)
def test_an_id_with_any_character_reaches_the_service_as_it_is(device_id):
    asked: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(204)

    with ServiceClient("http://service.test/v1", None, transport=httpx.MockTransport(handle)) as client:
        client.remove_device(device_id)
    raw = asked[0].url.raw_path.decode("ascii")
    assert raw.count("/") == 4
    assert unquote(raw.removeprefix("/v1/onboarding/device/")) == device_id
    assert raw.removeprefix("/v1/onboarding/device/") not in {".", ".."}


@pytest.mark.parametrize("value", ["", "\ud800"])
def test_an_id_that_cannot_stand_in_a_path_is_refused(value):
    with pytest.raises(InvalidMessage):
        paths.device_commands(value)
