"""What a program adds to the service: further endpoints, pages for people, and what runs as long as the service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from simulator.service.browser_access import BrowserAccess
from simulator.service.endpoints import Endpoint
from simulator.service.service import Service


@dataclass(frozen=True, slots=True)
class Addition:
    """Endpoints, and what belongs to them.

    Attributes:
        control: further control paths; ``/_emulator/openapi.json`` describes them as the others.
        pages: pages and their files, which no document describes.
        access: who may use them from a browser.
        running: entered on the server's event loop before the first request, left after the last one.
        entry_path: makes the path that a person opens first; each is good once.
        close: called when the service begins to end: streams without end are to end now.
    """

    control: Sequence[Endpoint]
    pages: Sequence[Endpoint]
    access: BrowserAccess
    running: Callable[[], AbstractAsyncContextManager[None]]
    entry_path: Callable[[], str]
    close: Callable[[], None]


MakeAddition = Callable[[Service], Addition | None]
"""Makes it for a service; None where it has no place, such as a service without control paths."""
