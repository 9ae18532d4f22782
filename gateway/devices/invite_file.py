"""The file of the invitations: written by ``gateway devices invite`` and by the gateway when a device enrolls.

A SQLite database of its own beside the gateway's store, with the rollback journal, for the reasons that
:mod:`gateway.devices.token_file` gives. Of a code only the SHA-256 of its secret is kept.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from agent.errors import ConfigurationError
from gateway.devices.new_file import create_empty

FILE_NAME: Final = "invites.db"

_VERSION: Final = 1
_BUSY_S: Final = 10.0
_TABLES: Final = """
CREATE TABLE invite (
    digest BLOB PRIMARY KEY,
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    count INTEGER NOT NULL,
    revoked_at REAL,
    wanted TEXT NOT NULL,
    reach TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE enrolled (
    digest BLOB NOT NULL REFERENCES invite (digest),
    identifier TEXT NOT NULL,
    device_id TEXT,
    at REAL NOT NULL,
    PRIMARY KEY (digest, identifier)
) WITHOUT ROWID;
"""
_COLUMNS: Final = "digest, created_at, expires_at, count, revoked_at, wanted, reach"
_ID_CHARACTERS: Final = 8


@dataclass(frozen=True, slots=True)
class WantedByInvite:
    """Device that an invitation is for: one that the service has, or the registration of new ones.

    Attributes:
        device_id: its id at the service; None when it is registered there.
        product_id: its product, when it is registered.
        user_id: the account that it is registered for.
        name: for people; a device that says a name of its own keeps that one.
        replace: a device that holds a valid token may enroll, which ends that token.
    """

    device_id: str | None = None
    product_id: str | None = None
    user_id: str | None = None
    name: str | None = None
    replace: bool = False


@dataclass(frozen=True, slots=True)
class InviteAccess:
    """How an enrolled device reaches the gateway; members as of :class:`gateway.devices.handout.GatewayAccess`."""

    url: str | None = None
    broker: str | None = None
    authority: str | None = None
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Invite:
    """An invitation, as it is stored: never with its code.

    Attributes:
        digest: SHA-256 of the code's secret.
        created_at: epoch seconds, as all times here.
        expires_at: no device enrolls with it from then on.
        count: devices that may enroll with it.
        revoked_at: when it was taken back.
        wanted: what becomes of a device.
        reach: how it reaches the gateway.
        enrolled: how many have.
    """

    digest: bytes
    created_at: float
    expires_at: float
    count: int
    revoked_at: float | None
    wanted: WantedByInvite
    reach: InviteAccess
    enrolled: int = 0

    @property
    def invite_id(self) -> str:
        """Short id for people and commands; the code does not follow from it."""
        return self.digest.hex()[:_ID_CHARACTERS]

    def state(self, now_s: float) -> str:
        """One word: ``open``, ``used``, ``expired`` or ``revoked``."""
        if self.revoked_at is not None:
            return "revoked"
        if now_s >= self.expires_at:
            return "expired"
        return "used" if self.enrolled >= self.count else "open"


class EnrollmentRefused(Exception):
    """A code that does not enroll this device; the text says why."""


class DeviceHasToken(Exception):
    """The identifier is that of a device with a valid token, which stays; the text says what to do."""


def digest_of_secret(secret: str) -> bytes:
    """SHA-256 of a code's secret, by which its invitation is stored and found; 32 bytes."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


class InviteFile:
    """One connection to the file; used by one thread at a time. Made, mode 600, where there is none.

    Every method may raise :class:`sqlite3.Error`.

    Raises:
        ConfigurationError: it cannot be opened, or is none of ours.
    """

    def __init__(self, path: Path) -> None:
        try:
            create_empty(path)
            self._connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA trusted_schema=OFF")
            self._connection.execute("PRAGMA synchronous=FULL")
            self._make_tables()
        except OSError as error:
            fix = "run it as the gateway's user, or as root"
            raise ConfigurationError([f"{path} cannot be opened: {error.strerror}; {fix}"], "invitations") from None
        except sqlite3.Error as error:
            fix = "run it as the gateway's user, or as root, or move the file away: its codes are then good for nothing"
            raise ConfigurationError([f"{path} cannot be used: {error}; {fix}"], "invitations") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def add(self, invite: Invite) -> None:
        """Keep a new one; those that ended a week ago go."""
        with self._transaction():
            old = (invite.created_at - 7 * 86_400.0,)
            self._connection.execute(
                "DELETE FROM enrolled WHERE digest IN (SELECT digest FROM invite WHERE expires_at < ?)", old
            )
            self._connection.execute("DELETE FROM invite WHERE expires_at < ?", old)
            self._connection.execute(
                f"INSERT INTO invite ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - constants
                (
                    invite.digest,
                    invite.created_at,
                    invite.expires_at,
                    invite.count,
                    None,
                    json.dumps(_members(invite.wanted)),
                    json.dumps(_members(invite.reach)),
                ),
            )

    def invites(self) -> list[Invite]:
        """All that are kept, newest first."""
        rows = self._connection.execute(
            f"SELECT {_COLUMNS}, (SELECT COUNT(*) FROM enrolled WHERE enrolled.digest = invite.digest) "  # noqa: S608 - constants
            f"FROM invite ORDER BY created_at DESC"
        )
        return [_invite(row) for row in rows]

    def revoke(self, invite_id: str, now_s: float) -> bool:
        """Take one back, also one that is used: its devices could enroll again; whether there was one of this id."""
        with self._transaction():
            good = ("open", "used")
            found = [each for each in self.invites() if each.invite_id == invite_id and each.state(now_s) in good]
            for each in found:
                self._connection.execute("UPDATE invite SET revoked_at = ? WHERE digest = ?", (now_s, each.digest))
        return bool(found)

    def claim(self, secret: str, identifier: str, now_s: float) -> tuple[Invite, float | None]:
        """Note that a device enrolls; the same device may do so again with the same code while that is good.

        Returns:
            The invitation, and when this identifier came with its code first; None when it comes for the first time.

        Raises:
            EnrollmentRefused: the code is unknown, used, expired or revoked.
        """
        with self._transaction():
            digest = digest_of_secret(secret)
            found = next((each for each in self.invites() if each.digest == digest), None)
            if found is None:
                raise EnrollmentRefused("this code is unknown here: ask for a new one (device-gateway devices invite)")
            again = self._connection.execute(
                "SELECT at FROM enrolled WHERE digest = ? AND identifier = ?", (digest, identifier)
            ).fetchone()
            state = found.state(now_s)
            if state != "open" and not (state == "used" and again):
                how = {"used": "was used", "expired": "has expired", "revoked": "was taken back"}[state]
                raise EnrollmentRefused(f"this code {how}: ask for a new one (device-gateway devices invite)")
            if not again:
                self._connection.execute("INSERT INTO enrolled VALUES (?, ?, NULL, ?)", (digest, identifier, now_s))
        return found, None if again is None else float(again[0])

    def release(self, invite: Invite, identifier: str) -> None:
        """A device that got no token after all uses nothing up."""
        with self._transaction():
            self._connection.execute(
                "DELETE FROM enrolled WHERE digest = ? AND identifier = ? AND device_id IS NULL",
                (invite.digest, identifier),
            )

    def settle(self, invite: Invite, identifier: str, device_id: str) -> None:
        """Note the id that a device got."""
        with self._transaction():
            self._connection.execute(
                "UPDATE enrolled SET device_id = ? WHERE digest = ? AND identifier = ?",
                (device_id, invite.digest, identifier),
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _make_tables(self) -> None:
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version == _VERSION:
            return
        if version != 0:
            raise sqlite3.DatabaseError(f"its version is {version}, and this program reads {_VERSION}")
        with self._transaction():
            if self._connection.execute("PRAGMA user_version").fetchone()[0] == 0:  # another process may be first
                for statement in filter(str.strip, _TABLES.split(";")):
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version={_VERSION}")


def _members(value: WantedByInvite | InviteAccess) -> dict[str, object]:
    return {name: getattr(value, name) for name in type(value).__dataclass_fields__}


def _invite(row: Sequence[object]) -> Invite:
    digest, created_at, expires_at, count, revoked_at, wanted, reach, enrolled = row
    return Invite(
        digest,  # type: ignore[arg-type]  # SQLite's values have no types
        created_at,  # type: ignore[arg-type]
        expires_at,  # type: ignore[arg-type]
        count,  # type: ignore[arg-type]
        revoked_at,  # type: ignore[arg-type]
        WantedByInvite(**json.loads(str(wanted))),
        InviteAccess(**json.loads(str(reach))),
        enrolled,  # type: ignore[arg-type]
    )
