"""``/_emulator/accounts``: any number of manufacturers on one service, with keys, people and partners of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import Field, model_validator
from pydantic_core import to_json
from sqlalchemy import Connection, Row

from agent.wire.base import Items, JsonObject, Sent, Text
from agent.wire.secret import Secret
from simulator.service.accounts import QUOTA_MAX, MadeAccount, WantedAccount, WantedUser, check_name
from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.answers import NO_CONTENT, Answer, Header, ok
from simulator.service.call import Call
from simulator.service.config import fault_of_keys
from simulator.service.control_records import AccountRecord, NewAccountRecord, NewKeyRecord
from simulator.service.endpoints import ERROR, Endpoint, Reply
from simulator.service.errors import invalid, invalid_all
from simulator.service.paging import PAGE_PARAMETERS, Part, read_page
from simulator.service.parameters import PAGING
from simulator.service.profiles.model import COMPLETE, ServerProfile
from simulator.service.profiles.text import ProfileFaultsError, change, name_of
from simulator.service.routes.control_clients import ClientBody, client_record
from simulator.service.storage import accounts
from simulator.service.storage.keys import Keys, make_keys
from simulator.service.times import show_time

_TAG: Final = "control"
_PATH: Final = f"{CONTROL_PREFIX}accounts"
_AT_ONCE: Final = 100
"""Key pairs, people and partners that one request may bring."""
_NO_STORE: Final[tuple[Header, ...]] = ((b"cache-control", b"no-store"),)
_Quota = Annotated[
    int | None,
    Field(
        ge=0,
        le=QUOTA_MAX,
        description="Requests of each key of the account in a minute, 0 = no limit; null for the service's.",
    ),
]


class KeysBody(Sent):
    """A key pair. Both parts are made when both are left out."""

    api_key: Text | None = None
    secret_key: Text | None = None


class UserBody(Sent):
    """A person who may sign in to the account; the id is made when it is left out."""

    email: Text
    password: Text
    user_id: Text | None = None


class AccountBody(Sent):
    """An account that is to be made, and what it begins with. Without ``keys`` it gets one pair."""

    name: Annotated[Text | None, Field(description="Unique on the service; made when it is left out.")] = None
    quota: _Quota = None
    profile: Annotated[
        JsonObject | None,
        Field(description="How the account is answered: as for `PUT .../profile`; else as the complete service."),
    ] = None
    keys: Annotated[Items[KeysBody], Field(max_length=_AT_ONCE)] = ()
    users: Annotated[Items[UserBody], Field(max_length=_AT_ONCE)] = ()
    clients: Annotated[Items[ClientBody], Field(max_length=_AT_ONCE)] = ()


class AccountChange(Sent):
    """What is to be another one; what is left out stays."""

    name: Text | None = None
    quota: _Quota = None

    @model_validator(mode="after")
    def _something(self) -> AccountChange:
        if not self.model_fields_set:
            raise ValueError("give name or quota")
        return self


async def list_accounts(call: Call) -> Answer:
    """Accounts in the order in which they were made, without what they have."""
    page = read_page(call, call.query(PAGE_PARAMETERS), default_order="asc", sort_values=1)

    def show(connection: Connection) -> Answer:
        rows = list(accounts.list_page(connection, page))
        shown = rows[: page.limit]
        records = _records(connection, shown)
        part = Part([to_json(one) for one in records], len(shown), shown[-1] if shown else None, len(rows) > len(shown))
        return part.answer(page)

    return await call.service.read(show)


async def show_account(call: Call) -> Answer:
    """One account, by its id, a public key or its name."""
    return ok(await call.service.look_up(lambda c: _records(c, [accounts.find(c, call.path("account_id"))])[0]))


async def add_account(call: Call) -> Answer:
    """Make it; its secrets are in this answer and nowhere else."""
    body, service = await call.message(AccountBody), call.service
    faults: list[tuple[str, str]] = []
    wanted = WantedAccount(
        name=body.name,
        profile=_read_profile(body.profile, faults),
        quota=body.quota,
        keys=tuple(_read_keys(pair, f"keys.{index}.", faults) for index, pair in enumerate(body.keys)),
        users=tuple(WantedUser(one.email, Secret(one.password), one.user_id) for one in body.users),
        clients=tuple(one.wanted() for one in body.clients),
    )
    if faults:
        raise invalid_all(faults)
    # A password takes a good part of a tenth of a second.
    made = await asyncio.to_thread(service.accounts.prepare, wanted) if body.users else service.accounts.prepare(wanted)
    seq, callers = await service.writer.submit(lambda c: accounts.add(c, made.stored, made.created_ms))
    service.accounts.show(made, seq, callers)
    place = f"{_PATH}/{made.stored.account_id}"
    return Answer(201, to_json(_new_record(made, wanted)), ((b"location", place.encode()), *_NO_STORE))


async def change_account(call: Call) -> Answer:
    """Give it another name or another quota."""
    body, service, account_id = await call.message(AccountChange), call.service, call.path("account_id")
    given = body.model_fields_set
    if "name" in given and (fault := check_name(body.name or "")) is not None:
        raise invalid("name", fault)

    def store(connection: Connection) -> tuple[Row[Any], AccountRecord]:
        row = accounts.find(connection, account_id)
        if body.name is not None:
            accounts.rename(connection, row, body.name)
        if "quota" in given:
            accounts.set_quota(connection, row.seq, body.quota)
        row = accounts.find(connection, row.id)
        return row, _records(connection, [row])[0]

    row, record = await service.writer.submit(store)
    service.quota.set_limit(row.seq, row.quota)
    return ok(record)


async def remove_account(call: Call) -> Answer:
    """Delete it with its keys and all that it has."""
    account_id = call.path("account_id")
    row = await call.service.look_up(lambda c: accounts.find(c, account_id))
    await call.service.remove_account(row.seq)
    return NO_CONTENT


async def add_key(call: Call) -> Answer:
    """A further key pair; the others stay good."""
    body, service, account_id = await call.message(KeysBody), call.service, call.path("account_id")
    faults: list[tuple[str, str]] = []
    pair = _read_keys(body, "", faults)
    if faults:
        raise invalid_all(faults)
    now_ms = service.clock.now_ms()
    caller = await service.writer.submit(
        lambda c: accounts.add_key(c, accounts.find(c, account_id).seq, pair, now_ms),
    )
    service.accounts.show_callers([caller])
    return Answer(201, to_json(_key_record(pair, now_ms)), _NO_STORE)


async def remove_key(call: Call) -> Answer:
    """A key pair is good no longer; the account keeps what it has."""
    service, account_id, api_key = call.service, call.path("account_id"), call.path("api_key")

    def remove(connection: Connection) -> None:
        accounts.remove_key(connection, accounts.find(connection, account_id).seq, api_key)

    await service.writer.submit(remove)
    service.accounts.end_key(api_key)
    service.quota.clear([api_key])
    return NO_CONTENT


def _read_profile(axes: Mapping[str, Any] | None, faults: list[tuple[str, str]]) -> ServerProfile:
    try:
        return change(COMPLETE, axes or {})
    except ProfileFaultsError as exc:
        faults += [(f"profile.{axis}", issue) for axis, issue in exc.faults]
        return COMPLETE


def _read_keys(body: KeysBody, prefix: str, faults: list[tuple[str, str]]) -> Keys:
    if body.api_key is None and body.secret_key is None:
        return make_keys()
    found = fault_of_keys(body.api_key, body.secret_key)
    faults += [(f"{prefix}{field}", issue) for field, issue in found]
    return Keys(body.api_key or "", Secret(body.secret_key or ""))


def _records(connection: Connection, rows: Sequence[Row[Any]]) -> list[AccountRecord]:
    keys_of: dict[int, list[Row[Any]]] = {}
    for key in accounts.keys_of(connection, [row.seq for row in rows]):
        keys_of.setdefault(key.manufacturer_seq, []).append(key)
    return [
        {
            "account_id": row.id,
            "name": row.name,
            "created_at": show_time(row.created_at),
            "quota": row.quota,
            "profile": "complete" if row.profile is None else name_of(ServerProfile.model_validate_json(row.profile)),
            "keys": [
                {"api_key": key.api_key, "created_at": show_time(key.created_at)} for key in keys_of.get(row.seq, ())
            ],
        }
        for row in rows
    ]


def _new_record(made: MadeAccount, wanted: WantedAccount) -> NewAccountRecord:
    stored = made.stored
    return {
        "account_id": stored.account_id,
        "name": stored.name,
        "created_at": show_time(made.created_ms),
        "quota": stored.quota,
        "profile": name_of(wanted.profile),
        "keys": [_key_record(pair, made.created_ms) for pair in stored.keys],
        "users": [{"user_id": person.user_id, "email": person.email} for person in stored.people],
        "clients": [client_record(*client) for client in zip(stored.clients, made.clients, strict=True)],
    }


def _key_record(pair: Keys, now_ms: int) -> NewKeyRecord:
    return {
        "api_key": pair.api_key,
        "secret_key": pair.secret_key.reveal(),
        "created_at": show_time(now_ms),
    }


_NO_ACCOUNT: Final = Reply(404, "`account_not_found`", ERROR)
_NO_WRITE: Final = Reply(503, "The storage cannot be written", ERROR)

ENDPOINTS: Final = (
    Endpoint(
        "POST",
        _PATH,
        add_account,
        "add_account",
        "Make an account, with key pairs, people who may sign in and partner applications of its own",
        _TAG,
        (
            Reply(201, "The account; its secrets are shown this once", NewAccountRecord, located=True),
            Reply(400, "What cannot be, by field", ERROR),
            Reply(
                409,
                "`account_exists`, `key_exists`, `user_exists`, `client_exists`: it, or a part of it, is there already;"
                " `account_limit_reached`",
                ERROR,
            ),
            _NO_WRITE,
        ),
        body=(AccountBody,),
        public=True,
    ),
    Endpoint(
        "GET",
        _PATH,
        list_accounts,
        "list_accounts",
        "All accounts, the oldest first",
        _TAG,
        (Reply(200, "A page of them", AccountRecord, listed=True), Reply(400, "The query is not valid", ERROR)),
        parameters=PAGING,
        public=True,
    ),
    Endpoint(
        "GET",
        f"{_PATH}/{{account_id}}",
        show_account,
        "show_account",
        "One account; account_id is its id, a public key or its name",
        _TAG,
        (Reply(200, "The account", AccountRecord), _NO_ACCOUNT),
        public=True,
    ),
    Endpoint(
        "PATCH",
        f"{_PATH}/{{account_id}}",
        change_account,
        "change_account",
        "Give an account another name or quota",
        _TAG,
        (
            Reply(200, "The account", AccountRecord),
            Reply(400, "What cannot be, by field", ERROR),
            _NO_ACCOUNT,
            Reply(409, "`account_exists`: another account has this name", ERROR),
            _NO_WRITE,
        ),
        body=(AccountChange,),
        public=True,
    ),
    Endpoint(
        "DELETE",
        f"{_PATH}/{{account_id}}",
        remove_account,
        "remove_account",
        "Delete an account with its keys and all that it has",
        _TAG,
        (
            Reply(204, "Done"),
            _NO_ACCOUNT,
            Reply(409, "`first_account`: the service always has that one", ERROR),
            _NO_WRITE,
        ),
        public=True,
    ),
    Endpoint(
        "POST",
        f"{_PATH}/{{account_id}}/keys",
        add_key,
        "add_key",
        "A further key pair of an account; the others stay good",
        _TAG,
        (
            Reply(201, "The pair; its secret is shown this once", NewKeyRecord),
            Reply(400, "What cannot be, by field", ERROR),
            _NO_ACCOUNT,
            Reply(409, "`key_exists`: an account has this key; `key_limit_reached`", ERROR),
            _NO_WRITE,
        ),
        body=(KeysBody,),
        public=True,
    ),
    Endpoint(
        "DELETE",
        f"{_PATH}/{{account_id}}/keys/{{api_key}}",
        remove_key,
        "remove_key",
        "End a key pair of an account",
        _TAG,
        (
            Reply(204, "Done"),
            Reply(404, "`account_not_found`; `key_not_found`", ERROR),
            Reply(409, "`last_key`: add another pair first, or remove the account", ERROR),
            _NO_WRITE,
        ),
        public=True,
    ),
)
