"""Looks up the names in a match, and reads the facts of an incoming request that a match compares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection
from starlette.types import Scope

from simulator.service.errors import ServiceError, invalid_all
from simulator.service.matching import Issues, Matcher, RequestFacts, RequestMatch, make_matcher, named_ids
from simulator.service.storage import accounts, devices, products
from simulator.service.storage.keys import Caller

if TYPE_CHECKING:
    from simulator.service.service import Service


async def find_matcher(service: Service, wanted: RequestMatch, field: str = "match") -> Matcher:
    """The match as something that requests can be held against.

    Args:
        service: whose paths, accounts, devices and products it may name.
        wanted: the match as it was given.
        field: what the match is called in the body that it comes from, empty in a query; errors name it.

    Raises:
        Invalid: each member that names nothing that exists.
    """
    account, issues = await service.look_up(lambda connection: _look_up(connection, service, wanted))
    matcher, found = make_matcher(wanted, service.templates, account)
    if issues := [*found, *issues]:
        raise invalid_all([(f"{field}.{name}" if field else name, issue) for name, issue in issues])
    return matcher


def _look_up(connection: Connection, service: Service, wanted: RequestMatch) -> tuple[int | None, Issues]:
    """The row of the account that is named, and what names nothing."""
    issues: Issues = []
    account = None
    if wanted.account_id is not None:
        try:
            account = accounts.find(connection, wanted.account_id).seq
        except ServiceError:
            issues.append(("account_id", f"there is no account with the id, key or name {wanted.account_id[:80]!r}"))
    if wanted.api_key is not None:
        caller = service.callers.get(wanted.api_key.encode())
        if caller is None:
            issues.append(("api_key", f"there is no key {wanted.api_key[:80]!r}"))
        elif account not in {None, caller.manufacturer_seq}:
            issues.append(("api_key", "belongs to another account than account_id"))
        else:
            account = caller.manufacturer_seq
    if wanted.device_id is not None and not devices.find_products(connection, [wanted.device_id]):
        issues.append(("device_id", f"there is no device {wanted.device_id[:80]!r}"))
    if wanted.product_id is not None and not products.exists(connection, wanted.product_id):
        issues.append(("product_id", f"there is no product {wanted.product_id[:80]!r}"))
    return account, issues


async def read_facts(service: Service, scope: Scope, body: bytes = b"") -> RequestFacts:
    """What a match looks at of a request.

    Args:
        service: which knows the keys, and the products of devices.
        scope: the request's, as it came.
        body: all of it, for the devices and products that it names; empty where nothing asks for them.
    """
    path: str = scope["raw_path"].decode("latin-1")
    headers: dict[bytes, bytes] = dict(scope["headers"])
    found = service.templates.find(path)
    ids = {} if found is None else found.ids
    query: bytes = scope["query_string"]
    device_ids = named_ids("device_id", ids, query, body)
    product_ids = named_ids("product_id", ids, query, body)
    if device_ids:
        of_devices = await service.look_up(lambda connection: devices.find_products(connection, device_ids))
        product_ids = tuple(dict.fromkeys((*product_ids, *of_devices.values())))
    caller = await find_account(service, headers)
    return RequestFacts(
        method=scope["method"],
        path=path,
        template=None if found is None else found.template,
        ids=ids,
        device_ids=device_ids,
        product_ids=product_ids,
        account=None if caller is None else caller.manufacturer_seq,
        api_key=None if caller is None or b"x-api-key" not in headers else caller.api_key,
        headers=headers,
    )


async def find_account(service: Service, headers: dict[bytes, bytes]) -> Caller | None:
    """Whose key or bearer token a request carries, whether or not its secret is right; None when it is nobody's."""
    api_key = headers.get(b"x-api-key")
    if api_key is not None:
        return service.callers.get(api_key)
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if scheme.lower() != "bearer":
        return None
    try:
        return await service.find_bearer(token.strip(" "))
    except ServiceError:  # the service itself answers what that means
        return None
