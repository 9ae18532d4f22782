"""``/_emulator/...``: looking after a service that is used to develop against. Loopback callers only."""

from __future__ import annotations

import asyncio
from typing import Final

from sqlalchemy import text

from agent.wire.base import Items, Sent
from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.answers import NO_CONTENT, Answer, ok
from simulator.service.call import Call
from simulator.service.endpoints import ERROR, Endpoint, Parameter, Reply
from simulator.service.errors import Unavailable, invalid_all, not_found
from simulator.service.records import HealthRecord, SeedRecord
from simulator.service.seed import SeedClient, SeedDevice, SeedFaultsError, SeedProduct, SeedUser, parse_seed
from simulator.service.storage.keys import Caller
from simulator.service.storage.migrate import SCHEMA
from simulator.service.times import show_time

_TAG: Final = "control"
_OF_ACCOUNT: Final = frozenset({"api_key"})
_YAML: Final = frozenset({b"application/yaml", b"application/x-yaml", b"text/yaml"})
_ACCOUNT: Final = Parameter("api_key", "A key of the one account that is meant", {"type": "string"})
_FAULTS: Final = (
    Reply(400, "The query is not valid", ERROR),
    Reply(404, "No account has this key", ERROR),
    Reply(503, "The storage cannot be written", ERROR),
)


class SeedBody(Sent):
    """What is to be there; every group may be left out."""

    products: Items[SeedProduct] = ()
    devices: Items[SeedDevice] = ()
    users: Items[SeedUser] = ()
    clients: Items[SeedClient] = ()


async def show_health(call: Call) -> Answer:
    """Whether the service can read and write."""
    service = call.service
    if service.failure is not None:
        raise Unavailable("part_ended", f"{service.failure}. The service ends; its log says why.")
    await service.look_up(lambda connection: connection.execute(text("SELECT 1")).scalar_one())
    now_ms = service.clock.now_ms()
    return ok(
        {
            "status": "ok",
            "time": show_time(now_ms),
            "uptime_s": (now_ms - service.started_ms) / 1000,
            "storage": service.database.kind,
            "schema": str(SCHEMA),
        }
    )


async def reset(call: Call) -> Answer:
    """Delete everything but accounts and keys; counts of the quota begin anew."""
    await call.service.reset(account_of(call, call.query(_OF_ACCOUNT)))
    return NO_CONTENT


async def seed(call: Call) -> Answer:
    """Bring the account to what the YAML says; the same text twice changes nothing."""
    query = call.query(_OF_ACCOUNT)
    try:
        raw = await call.read_body(_YAML)
        wanted = await asyncio.to_thread(parse_seed, raw)  # YAML is slow to read
        caller = account_of(call, query) or call.service.first_caller()
        return ok(await call.service.apply_seed(wanted, caller))
    except SeedFaultsError as exc:
        raise invalid_all(
            [(f"line {line}{f' {field}' if field else ''}", issue) for line, field, issue in exc.faults]
        ) from None


def account_of(call: Call, query: dict[str, str]) -> Caller | None:
    """Whom ``api_key`` in the query belongs to; None when it is not given.

    Raises:
        HttpError: 404 ``account_not_found``.
    """
    key = query.get("api_key")
    if key is None:
        return None
    caller = call.service.callers.get(key.encode())
    if caller is None:
        raise not_found("account", key, "on this service")
    return caller


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        f"{CONTROL_PREFIX}health",
        show_health,
        "show_health",
        "Whether the service can read and write",
        _TAG,
        (
            Reply(200, "It can", HealthRecord),
            Reply(503, "The storage cannot be read, or an error has ended a part of the service", ERROR),
        ),
        public=True,
    ),
    Endpoint(
        "POST",
        f"{CONTROL_PREFIX}reset",
        reset,
        "reset",
        "Delete everything but accounts and keys",
        _TAG,
        (Reply(204, "Done"), *_FAULTS),
        parameters=(_ACCOUNT,),
        public=True,
    ),
    Endpoint(
        "POST",
        f"{CONTROL_PREFIX}seed",
        seed,
        "seed",
        "Bring an account to what a seed says, given as YAML or JSON",
        _TAG,
        (Reply(200, "What was done", SeedRecord), Reply(400, "What is wrong, with its lines", ERROR), *_FAULTS[1:]),
        body=(SeedBody,),
        parameters=(_ACCOUNT,),
        public=True,
    ),
)
