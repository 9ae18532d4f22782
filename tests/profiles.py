"""The local service as another server, for tests: a profile for the first account, and what is true behind it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import httpx

from simulator.service.profiles.model import AXES, COMPLETE, ServerProfile, values_of
from simulator.service.profiles.text import change
from tests.service_running import Bench, client, running

TRUTH = {"x-emulator-profile": "complete"}
"""Headers of a request that the complete service answers."""


def choices() -> Iterator[tuple[str, Any]]:
    """Every (axis, value) that is not the complete service's."""
    for axis in AXES:
        for value in values_of(axis):
            if value != getattr(COMPLETE, axis):
                yield axis, value


def profile(base: str = "complete", **axes: Any) -> ServerProfile:
    """A named profile with some axes changed."""
    return change(COMPLETE, {"base": base, **axes})


@contextlib.contextmanager
def running_as(wanted: ServerProfile, **settings: Any) -> Iterator[Bench]:
    """A service with this profile; the bench's own client is answered by the complete service."""
    with running(profile=wanted, **settings) as bench:
        bench.http.headers.update(TRUTH)
        yield bench


def outside(bench: Bench) -> httpx.Client:
    """A client that sees the server which the profile makes of the service."""
    return client(bench.service)


def switch(bench: Bench, wanted: ServerProfile, api_key: str | None = None) -> None:
    """Answer an account by this profile from now on; the first one unless a key says another."""
    key = api_key or bench.service.api_key
    answer = bench.http.put(f"/_emulator/accounts/{key}/profile", json=wanted.model_dump(mode="json"))
    assert answer.status_code == 200, answer.text
