"""The bodies that the control paths answer about accounts and snapshots."""

from __future__ import annotations

from typing_extensions import TypedDict

from simulator.service.records import NewClientRecord


class KeyRecord(TypedDict):
    """A key pair of an account, without its secret."""

    api_key: str
    created_at: str


class NewKeyRecord(KeyRecord):
    """A key pair that was made just now."""

    secret_key: str


class AccountRecord(TypedDict):
    """An account; ``quota`` is null where the service's holds, ``profile`` a name or what differs from ``complete``."""

    account_id: str
    name: str
    created_at: str
    quota: int | None
    profile: str
    keys: list[KeyRecord]


class NewUserRecord(TypedDict):
    """A person who may sign in."""

    user_id: str
    email: str


class NewAccountRecord(TypedDict):
    """An account that was made just now, with its secrets."""

    account_id: str
    name: str
    created_at: str
    quota: int | None
    profile: str
    keys: list[NewKeyRecord]
    users: list[NewUserRecord]
    clients: list[NewClientRecord]


class SnapshotClockRecord(TypedDict):
    """The service's clock when a snapshot was saved."""

    time: str
    mode: str
    rate: float


class SnapshotRecord(TypedDict):
    """A snapshot. Of a file that is none, ``fault`` says why, and what it would have is null."""

    name: str
    file: str
    size_bytes: int
    made_at: str | None
    clock: SnapshotClockRecord | None
    fault: str | None
