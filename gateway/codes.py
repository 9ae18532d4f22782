"""Enrollment codes: a device that has one is registered at the service, and gets a token and the way to the gateway.

Of a code only the SHA-256 of its secret is kept, in the file of the tokens.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from agent.errors import ConfigurationError
from agent.wire.enrollment import SECRET_BYTES, EnrollmentAnswer, EnrollmentCode, EnrollmentRequest, make_code
from agent.wire.registration import RegisterDevice
from gateway.devices import checked_registration, request_broker_update
from gateway.service import Service
from gateway.tokens import Randomness, Tokens, id_fault, make_token, transaction

_log = logging.getLogger(__name__)

OVERLAP_S: Final = 86_400.0
"""How long a token from before is good beside the new one; it ends when the new one is used."""
RETRY_S: Final = 600.0
"""For so long a device whose answer was lost may come again with the same code, though it holds a token by now."""
_KEPT_S: Final = 7 * 86_400.0
_ID_CHARACTERS: Final = 8


class EnrollmentRefused(Exception):
    """A code that does not enroll this device; the text says why."""


class UnknownCode(EnrollmentRefused):
    """A code that nobody has made here."""


class DeviceHasToken(Exception):
    """The identifier is that of a device with a valid token, which stays; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What an enrollment code grants: the identity of a known device (``device_id``), or the registration of a new one.

    Attributes:
        name: for people; a device that says a name of its own keeps that one.
        replace: a device that holds a valid token may enroll, which ends that token.
        url: where the enrolled device reaches the HTTP front; None when it speaks MQTT alone.
        broker: HOST or HOST:PORT; None when it speaks HTTP alone.
        authority: PEM text of the authority to trust; None for a public one.
        plain: no TLS, for a closed test network.
    """

    device_id: str | None = None
    product_id: str | None = None
    user_id: str | None = None
    name: str | None = None
    replace: bool = False
    url: str | None = None
    broker: str | None = None
    authority: str | None = None
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Code:
    """A code as it is kept; all times are epoch seconds.

    Attributes:
        count: devices that may enroll with it.
        enrolled: devices that have.
    """

    digest: bytes
    created_at: float
    expires_at: float
    count: int
    revoked_at: float | None
    terms: Terms
    enrolled: int = 0

    @property
    def code_id(self) -> str:
        """Short id for people and commands; the code does not follow from it."""
        return self.digest.hex()[:_ID_CHARACTERS]

    def state(self, now_s: float) -> str:
        """One word: ``open``, ``used``, ``expired`` or ``revoked``."""
        if self.revoked_at is not None:
            return "revoked"
        if now_s >= self.expires_at:
            return "expired"
        return "used" if self.enrolled >= self.count else "open"


def digest_of_secret(secret: str) -> bytes:
    """SHA-256 of a code's secret, by which it is kept and found; 32 bytes."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


class Codes:
    """The codes in the file of the tokens, for one thread. Every method may raise :class:`sqlite3.Error`."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    @property
    def _connection(self) -> sqlite3.Connection:
        return self._tokens.connection

    def make(
        self,
        terms: Terms,
        expires_s: float,
        count: int,
        certificate: bytes | None,
        now_s: float,
        randomness: Randomness,
    ) -> tuple[EnrollmentCode, Code]:
        """Make a code, known at this moment only; those that ended a week ago go.

        Args:
            terms: what becomes of a device.
            expires_s: for how long it is good, seconds.
            count: for how many devices.
            certificate: the one that devices are shown, DER; None for an address without TLS.
            now_s: epoch seconds.
            randomness: such as :func:`secrets.token_bytes`.

        Raises:
            ConfigurationError: the terms contradict each other.
        """
        if terms.device_id is not None:
            fault = id_fault(terms.device_id)
            if fault is None and count > 1:
                fault = "--device-id is for one device: leave --count out, or give --product-id"
            if fault is None and (terms.product_id or terms.user_id or terms.name):
                fault = "give either --device-id, or --product-id and --user-id to register devices"
            if fault is not None:
                raise ConfigurationError([fault], "invite")
        else:
            checked_registration(terms.product_id, "checked when a device enrolls", terms.user_id, terms.name, "invite")
        code = make_code(randomness(SECRET_BYTES), certificate)
        made = Code(digest_of_secret(code.secret), now_s, now_s + expires_s, count, None, terms)
        old = (now_s - _KEPT_S,)
        with transaction(self._connection):
            self._connection.execute(
                "DELETE FROM enrolled WHERE digest IN (SELECT digest FROM code WHERE expires_at < ?)", old
            )
            self._connection.execute("DELETE FROM code WHERE expires_at < ?", old)
            self._connection.execute(
                "INSERT INTO code VALUES (?, ?, ?, ?, NULL, ?)",
                (made.digest, now_s, made.expires_at, count, json.dumps(asdict(terms))),
            )
        return code, made

    def all(self) -> list[Code]:
        """All that are kept, newest first."""
        rows = self._connection.execute(f"{_SELECT} ORDER BY created_at DESC")
        return [_code(row) for row in rows]

    def find(self, secret: str) -> Code | None:
        """The code with this secret."""
        row = self._connection.execute(f"{_SELECT} WHERE digest = ?", (digest_of_secret(secret),)).fetchone()
        return None if row is None else _code(row)

    def revoke(self, code_id: str, now_s: float) -> bool:
        """Take one back, also one that is used: its devices could enroll again; whether there was one of this id."""
        found = [each for each in self.all() if each.code_id == code_id and each.state(now_s) in {"open", "used"}]
        with transaction(self._connection):
            for each in found:
                self._connection.execute("UPDATE code SET revoked_at = ? WHERE digest = ?", (now_s, each.digest))
        return bool(found)

    def claim(self, secret: str, identifier: str, now_s: float) -> tuple[Code, float | None]:
        """Note that a device enrolls; the same device may do so again with the same code while that is good.

        Returns:
            The code, and when this identifier came with it first; None when it comes for the first time.

        Raises:
            EnrollmentRefused: the code is unknown, used, expired or revoked.
        """
        with transaction(self._connection):
            code = self.find(secret)
            if code is None:
                raise UnknownCode("this code is unknown here: ask for a new one (device-gateway devices invite)")
            again = self._connection.execute(
                "SELECT at FROM enrolled WHERE digest = ? AND identifier = ?", (code.digest, identifier)
            ).fetchone()
            state = code.state(now_s)
            if state != "open" and not (state == "used" and again):
                how = {"used": "was used", "expired": "has expired", "revoked": "was taken back"}[state]
                raise EnrollmentRefused(f"this code {how}: ask for a new one (device-gateway devices invite)")
            if not again:
                self._connection.execute(
                    "INSERT INTO enrolled VALUES (?, ?, NULL, ?)", (code.digest, identifier, now_s)
                )
        return code, None if again is None else float(again[0])

    def settle(self, code: Code, identifier: str, device_id: str | None) -> None:
        """Note the id that a device got; with None it got no token after all, and used nothing up."""
        with transaction(self._connection):
            if device_id is None:
                self._connection.execute(
                    "DELETE FROM enrolled WHERE digest = ? AND identifier = ? AND device_id IS NULL",
                    (code.digest, identifier),
                )
            else:
                self._connection.execute(
                    "UPDATE enrolled SET device_id = ? WHERE digest = ? AND identifier = ?",
                    (device_id, code.digest, identifier),
                )


_SELECT: Final = (
    "SELECT digest, created_at, expires_at, count, revoked_at, terms, "
    "(SELECT COUNT(*) FROM enrolled WHERE enrolled.digest = code.digest) FROM code"
)


def _code(row: tuple[bytes, float, float, int, float | None, str, int]) -> Code:
    digest, created_at, expires_at, count, revoked_at, terms, enrolled = row
    return Code(digest, created_at, expires_at, count, revoked_at, Terms(**json.loads(terms)), enrolled)


class Enroller:
    """Enrolls devices, for the HTTP front.

    Args:
        tokens: of the gateway.
        service: where devices are registered.
        state_dir: gets the mark that the broker lacks a token.
        randomness: such as :func:`secrets.token_bytes`.
        wall: epoch seconds.
    """

    def __init__(
        self,
        tokens: Tokens,
        service: Service,
        state_dir: Path,
        randomness: Randomness,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._tokens = tokens
        self.codes = Codes(tokens)
        self._service = service
        self._state_dir = state_dir
        self._randomness = randomness
        self._wall = wall
        # A device that asks again before its first request is answered waits for that one.
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def enroll(self, request: EnrollmentRequest) -> EnrollmentAnswer:
        """Register the device where it is to be, and give it a token.

        Raises:
            EnrollmentRefused: the code does not enroll it.
            DeviceHasToken: the identifier is that of a device with a valid token.
            ServiceError: the service did not register it; the code is as good as before.
            ConfigurationError, sqlite3.Error: files of the gateway cannot be used, or an id may have no token.
        """
        secret, identifier = request.secret.reveal(), request.device_identifier
        lock = self._locks.setdefault((secret, identifier), asyncio.Lock())
        async with lock:
            code, first_s = self.codes.claim(secret, identifier, self._wall())
            try:
                device_id = await self._find(code.terms, request)
                is_retry = first_s is not None and 0.0 <= self._wall() - first_s <= RETRY_S
                if not is_retry:
                    self._refuse_to_replace(code.terms, device_id)
                new = make_token(self._randomness)
                self._tokens.issue({device_id: new}, OVERLAP_S)
            except BaseException:
                self.codes.settle(code, identifier, None)
                raise
            self.codes.settle(code, identifier, device_id)
        terms = code.terms
        if terms.broker is not None:
            request_broker_update(self._state_dir)
        return EnrollmentAnswer(
            device_id=device_id,
            token=new.token,
            product_id=terms.product_id,
            url=terms.url,
            broker=terms.broker,
            plain=terms.plain,
            authority=terms.authority,
        )

    async def _find(self, terms: Terms, request: EnrollmentRequest) -> str:
        if terms.device_id is not None:
            return terms.device_id
        registration: RegisterDevice = checked_registration(
            terms.product_id, request.device_identifier, terms.user_id, request.device_name or terms.name, "enroll"
        )
        device = await self._service.register(registration)
        fault = "the service did not return its id" if not device.device_id else id_fault(device.device_id)
        if fault is not None:
            raise ConfigurationError([fault], "registration")
        return device.device_id

    def _refuse_to_replace(self, terms: Terms, device_id: str) -> None:
        """A code must not take a device's token from it: whoever has one could name the identifier of any device."""
        if terms.device_id is None and not terms.replace and self._tokens.serves(device_id):
            raise DeviceHasToken(
                f"the device {device_id} of this identifier holds a valid token: revoke it, or make a code with "
                "device-gateway devices invite --replace"
            )


STORAGE_FAULTS: Final = (ConfigurationError, sqlite3.Error, OSError)
"""Exceptions of :meth:`Enroller.enroll` for a database or key file that cannot be read or written."""
