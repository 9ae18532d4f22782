"""``/_emulator/accounts``: any number of manufacturers on one service, each with keys of its own.

A secret is shown once, in the answer that made it. It is stored as SHA-256 only: it has too many random bits to be
tried.
"""

from __future__ import annotations

import hmac
import secrets
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from agent.errors import ConfigurationError
from agent.wire.models import Items, Sent, Text
from agent.wire.secret import Secret
from simulator.service.caller import Caller, hash_secret
from simulator.service.config import fault_of_keys
from simulator.service.db import insert, one
from simulator.service.errors import conflict, invalid, invalid_all, not_found
from simulator.service.gate import CONTROL_PREFIX
from simulator.service.http import CallDep, Json, Router, answers, no_content
from simulator.service.oauth.store import NewClient, add_client
from simulator.service.paging import Page, PageQuery, page
from simulator.service.times import show_time
from simulator.service.variant import COMPLETE, ServerVariant, VariantChange, name_of

if TYPE_CHECKING:
    from simulator.service.service import Service

FIRST_ACCOUNT: Final = "default"
ACCOUNTS_MAX: Final = 100_000
KEYS_MAX: Final = 100
"""Key pairs of one account."""
QUOTA_MAX: Final = 1_000_000_000
_NO_STORE: Final = {"Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True)
class Keys:
    """A key pair, to be shown once."""

    api_key: str
    secret_key: Secret


def make_keys() -> Keys:
    """A new pair: 128 random bits for the name, 256 for the secret."""
    return Keys(f"mk_{secrets.token_hex(16)}", Secret(f"msk_{secrets.token_urlsafe(32)}"))


def add_account(sql: sqlite3.Connection, name: str, account_id: str, keys: Keys, now_ms: int) -> Caller:
    """A new account with one key pair."""
    account = insert(sql, "accounts", id=account_id, name=name, created_at=now_ms)
    return add_key(sql, account, keys, now_ms)


def add_key(sql: sqlite3.Connection, account: int, keys: Keys, now_ms: int, place: str = "") -> Caller:
    """A further key pair of an account.

    Args:
        sql: in a transaction.
        account: the account's row.
        keys: the pair.
        now_ms: this instant.
        place: what stands before ``api_key`` in an error.

    Raises:
        ApiError: 409 ``key_exists``: this one, in any account; ``key_limit_reached``.
    """
    if one(sql, "SELECT 1 FROM api_keys WHERE api_key = ?", (keys.api_key,)) is not None:
        issue = f"the key {keys.api_key!r} belongs to an account already"
        raise conflict("key_exists", f"{place}api_key: {issue}.", [(f"{place}api_key", issue)])
    if len(_keys_of(sql, account)) >= KEYS_MAX:
        raise conflict("key_limit_reached", f"The account has {KEYS_MAX} key pairs: remove one first.")
    secret_hash = hash_secret(keys.secret_key.reveal())
    insert(sql, "api_keys", api_key=keys.api_key, account=account, secret_hash=secret_hash, created_at=now_ms)
    return Caller(account, keys.api_key)


def first_account(sql: sqlite3.Connection) -> int:
    """The row of the account that the service always has."""
    row = one(sql, "SELECT row FROM accounts ORDER BY row LIMIT 1")
    return 0 if row is None else int(row["row"])


def oldest_key(service: Service) -> str:
    """The oldest public key of the first account."""
    return str(_keys_of(service.db.sql, first_account(service.db.sql))[0]["api_key"])


def open_first_account(service: Service) -> Keys | None:
    """Make the account that the service always has, with the configured keys or new ones.

    Returns:
        Keys that were made just now and nobody knows yet; None when they were given or are there from before.

    Raises:
        ConfigurationError: the given key is stored with another secret.
    """
    config, now_ms = service.config, service.clock.now_ms()
    given = Keys(config.api_key, config.secret_key) if config.api_key and config.secret_key else None
    with service.db.write() as sql:
        first = first_account(sql)
        if made := not first:
            keys = given or make_keys()
            first = add_account(sql, FIRST_ACCOUNT, service.ids.next(), keys, now_ms).account
        if config.variant is not None:
            set_variant(sql, first, config.variant)
        if made:
            return None if given else keys
        if given is not None:
            stored = one(sql, "SELECT secret_hash FROM api_keys WHERE api_key = ?", (given.api_key,))
            if stored is None:
                add_key(sql, first, given, now_ms)
            elif not hmac.compare_digest(stored["secret_hash"], hash_secret(given.secret_key.reveal())):
                fix = "give that one, or another folder"
                raise ConfigurationError(
                    [f"the data folder knows {given.api_key} with another secret key: {fix}"], "service keys"
                )
    return None


def find_account(sql: sqlite3.Connection, account_id: str) -> sqlite3.Row:
    """The account with this id, public key or name; the first of these that there is.

    Raises:
        ApiError: 404 ``account_not_found``; 400: several have this name.
    """
    for where in ("row = (SELECT account FROM api_keys WHERE api_key = ?)", "id = ?"):
        row = one(sql, f"SELECT * FROM accounts WHERE {where}", (account_id,))
        if row is not None:
            return row
    found = sql.execute("SELECT * FROM accounts WHERE name = ? ORDER BY row LIMIT 2", (account_id,)).fetchall()
    if len(found) > 1:
        raise invalid("account_id", "several accounts have this name: give the id or a public key")
    if not found:
        raise not_found("account", account_id, "on this service")
    account: sqlite3.Row = found[0]
    return account


def set_variant(sql: sqlite3.Connection, account: int, variant: ServerVariant) -> None:
    """Answer an account by this variant from now on."""
    text = None if variant == COMPLETE else variant.model_dump_json()
    sql.execute("UPDATE accounts SET variant = ? WHERE row = ?", (text, account))


def variant_of(row: sqlite3.Row) -> ServerVariant:
    """The variant of an account."""
    return COMPLETE if row["variant"] is None else ServerVariant.model_validate_json(row["variant"])


def _keys_of(sql: sqlite3.Connection, account: int) -> list[sqlite3.Row]:
    query = "SELECT api_key, created_at FROM api_keys WHERE account = ? ORDER BY created_at, api_key"
    return sql.execute(query, (account,)).fetchall()


# --- the control paths --------------------------------------------------------------------------------------------

router = Router("accounts")
_PATH: Final = f"{CONTROL_PREFIX}accounts"
_ONE: Final = f"{_PATH}/{{account_id}}"

Quota = Annotated[
    int,
    Field(ge=0, le=QUOTA_MAX, description="Requests of each key of the account in a minute, 0 = no limit."),
]


class NewKeys(Sent):
    """A key pair that is to be added. Both parts are made when both are left out."""

    api_key: Text | None = None
    secret_key: Text | None = None


class NewAccount(Sent):
    """An account that is to be made, and what it begins with. Without ``keys`` it gets one pair."""

    name: Annotated[
        str | None, Field(pattern=r"^[^\x00-\x1f\x7f]{1,200}$", description="Unique on the service; made without.")
    ] = None
    quota: Quota | None = None
    variant: Annotated[VariantChange, Field(description="How the account is answered.")] = VariantChange()
    keys: Annotated[Items[NewKeys], Field(max_length=KEYS_MAX)] = ()


class AccountChange(Sent):
    """Another quota; null for the service's."""

    quota: Quota | None


class Key(BaseModel):
    """A key pair of an account; ``secret_key`` is in the answer that made it, and in no other."""

    api_key: str
    secret_key: str = ""
    created_at: str


class Account(BaseModel):
    """An account; ``quota`` is null where the service's holds, ``variant`` a name or what differs from ``complete``."""

    account_id: str
    name: str
    created_at: str
    quota: int | None
    variant: str
    keys: list[Key]


class MadeClient(BaseModel):
    """A partner application that was registered just now; ``client_secret`` is null for a public one."""

    client_id: str
    client_secret: str | None
    name: str
    redirect_uris: list[str]
    scopes: list[str]
    grant_types: list[str]


@router.post(_PATH, status_code=201, response_model=Account, responses=answers(409))
async def make_account(call: CallDep, body: NewAccount) -> Response:
    """Make an account with its key pairs, whose secrets are shown this once."""
    service, now_ms = call.service, call.now_ms
    faults: list[tuple[str, str]] = []
    pairs = [_read_keys(pair, f"keys.{place}.", faults) for place, pair in enumerate(body.keys)] or [make_keys()]
    if faults:
        raise invalid_all(faults)
    variant = body.variant.of(COMPLETE)
    account_id = service.ids.next()
    name = body.name or f"account-{account_id}"
    with call.db.write() as sql:
        if one(sql, "SELECT count(*) AS count FROM accounts")["count"] >= ACCOUNTS_MAX:  # type: ignore[index]
            raise conflict("account_limit_reached", f"There are {ACCOUNTS_MAX} accounts, as many as there may be.")
        if one(sql, "SELECT 1 FROM accounts WHERE name = ?", (name,)) is not None:
            issue = f"there is an account named {name!r} already"
            raise conflict("account_exists", f"name: {issue}.", [("name", issue)])
        account = insert(sql, "accounts", id=account_id, name=name, quota=body.quota, created_at=now_ms)
        set_variant(sql, account, variant)
        for place, pair in enumerate(pairs):
            add_key(sql, account, pair, now_ms, f"keys.{place}.")
        record = _show(sql, find_account(sql, account_id)) | {"keys": [_show_made(pair, now_ms) for pair in pairs]}
    return Json(record, 201, {"Location": f"{_PATH}/{account_id}", **_NO_STORE})


@router.get(_PATH, response_model=Page[Account])
async def list_accounts(call: CallDep, query: Annotated[PageQuery, Query()]) -> Response:
    """All accounts, the oldest first."""
    return page(call, query, "SELECT * FROM accounts WHERE true", (), show=lambda row: _show(call.db.sql, row))


@router.get(_ONE, response_model=Account, responses=answers(404))
async def show_account(call: CallDep, account_id: str) -> Response:
    """One account; account_id is its id, a public key or its name."""
    return Json(_show(call.db.sql, find_account(call.db.sql, account_id)))


@router.patch(_ONE, response_model=Account, responses=answers(404))
async def change_account(call: CallDep, account_id: str, body: AccountChange) -> Response:
    """Give an account another quota."""
    with call.db.write() as sql:
        account = find_account(sql, account_id)["row"]
        sql.execute("UPDATE accounts SET quota = ? WHERE row = ?", (body.quota, account))
        return Json(_show(sql, one(sql, "SELECT * FROM accounts WHERE row = ?", (account,))))


@router.delete(_ONE, status_code=204, responses=answers(404, 409))
async def remove_account(call: CallDep, account_id: str) -> Response:
    """Delete an account with its keys and all that it has. It is gone as a whole, or as it was."""
    service = call.service
    account = find_account(call.db.sql, account_id)["row"]
    if account == first_account(call.db.sql):
        raise conflict("first_account", "The service always has its first account: a reset empties it.")
    with call.db.write() as sql:
        service.empty(sql, account)
        sql.execute("DELETE FROM api_keys WHERE account = ?", (account,))
        sql.execute("DELETE FROM accounts WHERE row = ?", (account,))
    await call.db.committed()
    service.faults.clear(account)
    service.requests.clear(account)
    service.forget(account)
    return no_content()


@router.post(f"{_ONE}/keys", status_code=201, response_model=Key, responses=answers(404, 409))
async def make_key(call: CallDep, account_id: str, body: NewKeys) -> Response:
    """A further key pair of an account; the others stay good. Its secret is shown this once."""
    faults: list[tuple[str, str]] = []
    pair = _read_keys(body, "", faults)
    if faults:
        raise invalid_all(faults)
    with call.db.write() as sql:
        add_key(sql, find_account(sql, account_id)["row"], pair, call.now_ms)
    return Json(_show_made(pair, call.now_ms), 201, _NO_STORE)


@router.delete(f"{_ONE}/keys/{{api_key}}", status_code=204, responses=answers(404, 409))
async def remove_key(call: CallDep, account_id: str, api_key: str) -> Response:
    """End a key pair of an account."""
    with call.db.write() as sql:
        known = {row["api_key"] for row in _keys_of(sql, find_account(sql, account_id)["row"])}
        if api_key not in known:
            raise not_found("key", api_key)
        if len(known) == 1:
            text = "This is the account's only key pair: add another one first, or remove the account."
            raise conflict("last_key", text)
        sql.execute("DELETE FROM api_keys WHERE api_key = ?", (api_key,))
    if call.service.own_keys is not None and call.service.own_keys.api_key == api_key:
        call.service.own_keys = None
    call.service.quota.clear([api_key])
    return no_content()


class OfAccount(BaseModel):
    """A query that may name one account."""

    api_key: Annotated[str | None, Field(description="A key of the one account that is meant.")] = None


@router.post(f"{CONTROL_PREFIX}clients", status_code=201, response_model=MadeClient, responses=answers(404, 409))
async def make_client(call: CallDep, body: NewClient, query: Annotated[OfAccount, Query()]) -> Response:
    """Register a partner application, by the first account unless `api_key` names another; its secret is shown once."""
    account = account_of_key(call.db.sql, query.api_key) or first_account(call.db.sql)
    with call.db.write() as sql:
        made = add_client(sql, account, body, call.now_ms)
    return Json(made.record(), 201, _NO_STORE)


def account_of_key(sql: sqlite3.Connection, api_key: str | None) -> int | None:
    """The row of the account with this key; None when none is given.

    Raises:
        ApiError: 404 ``account_not_found``.
    """
    return None if api_key is None else int(find_account(sql, api_key)["row"])


@router.get(f"{_ONE}/variant", response_model=ServerVariant, responses=answers(404))
async def show_variant(call: CallDep, account_id: str) -> Response:
    """How the service answers an account: every choice."""
    return Json(variant_of(find_account(call.db.sql, account_id)).model_dump())


@router.put(f"{_ONE}/variant", response_model=ServerVariant, responses=answers(404))
async def put_variant(call: CallDep, account_id: str, body: VariantChange) -> Response:
    """Answer an account by another variant: what is left out is as in `base`, or as the service itself has it."""
    variant = body.of(COMPLETE)
    with call.db.write() as sql:
        set_variant(sql, find_account(sql, account_id)["row"], variant)
    return Json(variant.model_dump())


def _read_keys(body: NewKeys, place: str, faults: list[tuple[str, str]]) -> Keys:
    if body.api_key is None and body.secret_key is None:
        return make_keys()
    faults += [(place + field, issue) for field, issue in fault_of_keys(body.api_key, body.secret_key)]
    return Keys(body.api_key or "", Secret(body.secret_key or ""))


def _show_made(pair: Keys, now_ms: int) -> dict[str, Any]:
    secret = pair.secret_key.reveal()
    return {"api_key": pair.api_key, "secret_key": secret, "created_at": show_time(now_ms)}


def _show(sql: sqlite3.Connection, row: sqlite3.Row | None) -> dict[str, Any]:
    assert row is not None  # noqa: S101 - for types: it was found before
    keys = _keys_of(sql, row["row"])
    return {
        "account_id": row["id"],
        "name": row["name"],
        "created_at": show_time(row["created_at"]),
        "quota": row["quota"],
        "variant": name_of(variant_of(row)),
        "keys": [{"api_key": key["api_key"], "created_at": show_time(key["created_at"])} for key in keys],
    }
