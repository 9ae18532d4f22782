"""The local service as another server, for tests: a variant for the first account, and what is true behind it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, get_args

import httpx

from simulator.service.variant import CHOICES, COMPLETE, ServerVariant, change
from tests.support.service_running import Bench, client, running

TRUTH = {"x-emulator-variant": "complete"}
"""Headers of a request that the complete service answers."""


def values_of(name: str) -> tuple[Any, ...]:
    """Every value of a choice; of a number or a list of names, some."""
    if name == "extensions":
        return True, False
    return (1, 5, 100) if name == "page_size" else get_args(ServerVariant.model_fields[name].annotation)


def choices() -> Iterator[tuple[str, Any]]:
    """Every (choice, value) that is not the service's own."""
    for name in CHOICES:
        for value in values_of(name):
            if value != getattr(COMPLETE, name):
                yield name, value


def variant(base: str = "complete", **chosen: Any) -> ServerVariant:
    """A named variant with some choices changed."""
    return change(COMPLETE, {"base": base, **chosen})


@contextlib.contextmanager
def running_as(wanted: ServerVariant, **settings: Any) -> Iterator[Bench]:
    """A service with this variant; the bench's own client is answered by the complete service."""
    with running(variant=wanted, **settings) as bench:
        bench.http.headers.update(TRUTH)
        yield bench


def outside(bench: Bench) -> httpx.Client:
    """A client that sees the server which the variant makes of the service."""
    return client(bench.service)


def switch(bench: Bench, wanted: ServerVariant, api_key: str | None = None) -> None:
    """Answer an account by this variant from now on; the first one unless a key says another."""
    key = api_key or bench.service.api_key
    answer = bench.http.put(f"/_emulator/accounts/{key}/variant", json=wanted.model_dump(mode="json"))
    assert answer.status_code == 200, answer.text
