"""Work that many tests would do again, alike, and that this process does once, and waits that prove nothing.

* **Certificates.** Each httpx client reads all certificates of this machine, also one that speaks plain HTTP. Those
  that ask for no other ones share what the first one read.
* **Ends.** Uvicorn looks every tenth of a second whether it is to end, and rests as long on the way. A test with a
  service of its own spent most of its time on that; here both are ten times as quick.
* **Passwords.** To hash one takes 16 MiB and some of a core, as it must where people guess.
  The people of the tests get scrypt at the least cost there is; what a service really takes is tested by itself.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from httpx._transports import default as httpx_transports
from uvicorn import server as uvicorn_server

from simulator.service.oauth import passwords

PRODUCTS_COST = passwords.COST
"""The service's own, for the test of it."""


@contextmanager
def taken() -> Iterator[None]:
    """Within the block this process takes all of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "COST", (2, 8, 1))
        patch.setattr(uvicorn_server, "asyncio", _Impatient())
        patch.setattr(httpx_transports, "create_ssl_context", _one_trust_store(httpx_transports.create_ssl_context))
        yield


def _one_trust_store(create: Callable[..., Any]) -> Callable[..., Any]:
    usual = functools.cache(lambda trust_env: create(verify=True, cert=None, trust_env=trust_env))
    at_first = _named_certificates()

    def shared(*, verify: Any = True, cert: Any = None, trust_env: bool = True) -> Any:
        if verify is True and cert is None and _named_certificates() == at_first:
            return usual(trust_env)
        return create(verify=verify, cert=cert, trust_env=trust_env)

    return shared


def _named_certificates() -> list[str | None]:
    return [os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")]


class _Impatient:
    """The module asyncio, as uvicorn's own loops see it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, delay: float) -> None:
        await asyncio.sleep(delay / 10)
