"""Enrollment codes: a device that has one is registered at the service, and gets a token and the way to the gateway.

Of a code only the SHA-256 of its secret is kept, in the file of the tokens.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final
from weakref import WeakValueDictionary

from pydantic import ValidationError

from agent.errors import ConfigurationError, Refused
from agent.wire.enrollment import SECRET_BYTES, EnrollmentAnswer, EnrollmentCode, make_code
from agent.wire.models import Sent, SentSecret, Text, describe_faults
from agent.wire.secret import Secret
from gateway.client import Identifier, RegisterDevice
from gateway.service import Service
from gateway.tokens import Tokens, digest_of, id_fault, make_token, request_broker_update, transaction

RETRY_S: Final = 600.0
"""How long a device whose answer was lost may repeat its request with the same code, though it has a token now."""
_KEPT_S: Final = 7 * 86_400.0
_ID_CHARACTERS: Final = 8
_SELECT: Final = """
SELECT digest, expires_at, count, enrolled, terms, CASE WHEN revoked_at IS NOT NULL THEN 'revoked'
    WHEN expires_at <= :now THEN 'expired' WHEN enrolled >= count THEN 'used' ELSE 'open' END
FROM (SELECT *, (SELECT COUNT(*) FROM enrolled WHERE enrolled.digest = code.digest) AS enrolled FROM code)
"""
_REFUSED: Final = "enrollment_refused"
_SAID: Final = {"used": "was used", "expired": "has expired", "revoked": "was taken back"}


class EnrollmentRequest(Sent):
    """Body of ``POST /enroll``.

    Attributes:
        secret: of the code.
        device_identifier: such as the serial number on the device's label; the same device sends the same one again.
        device_name: for people.
    """

    secret: SentSecret
    device_identifier: Identifier
    device_name: Text | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """How devices reach the gateway from where they are.

    Attributes:
        url: of the HTTP front; None for devices that only speak MQTT.
        broker: HOST or HOST:PORT; None for devices that only speak HTTP.
        authority: PEM text of the authority that signed the server's certificate; None for a public one.
        plain: no TLS, for a closed test network.
    """

    url: str | None = None
    broker: str | None = None
    authority: str | None = None
    plain: bool = False

    def handed(self, device_id: str, token: Secret, product_id: str | None) -> EnrollmentAnswer:
        """All that a device needs."""
        way = {field.name: getattr(self, field.name) for field in fields(Access)}
        return EnrollmentAnswer(device_id=device_id, token=token, product_id=product_id, **way)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms(Access):
    """The product and user that a device with this code is registered for, and how it reaches the gateway.

    Attributes:
        replace: a device that holds a valid token may enroll too. The old token is good until the new one is used,
            for a day at the most.
    """

    product_id: str
    user_id: str
    replace: bool = False

    def registration(self, identifier: str, name: str | None) -> RegisterDevice:
        """The request body that registers this device at the service.

        Raises:
            ValidationError: product or user have no such id.
        """
        return RegisterDevice(
            user_id=self.user_id, product_id=self.product_id, device_identifier=identifier, device_name=name
        )


@dataclass(frozen=True, slots=True)
class Code:
    """A code as it is kept.

    Attributes:
        expires_at: epoch seconds.
        count: devices that may enroll with it.
        enrolled: devices that have.
        state: ``open``, ``used``, ``expired`` or ``revoked``.
    """

    digest: bytes
    expires_at: float
    count: int
    enrolled: int
    terms: Terms
    state: str

    @property
    def code_id(self) -> str:
        """Short id for people and commands; nobody can find the code from it."""
        return self.digest.hex()[:_ID_CHARACTERS]


@dataclass(frozen=True, slots=True)
class Codes:
    """The codes in the file of the tokens, for one thread. Every method may raise :class:`sqlite3.Error`."""

    tokens: Tokens
    # One enrollment at a time for each code: else more devices could be registered than the code allows.
    locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def make(
        self, terms: Terms, expires_s: float, count: int, certificate: bytes | None
    ) -> tuple[EnrollmentCode, Code]:
        """Make a code, which can be read only now; codes that ended a week ago are deleted.

        Args:
            terms: what the code grants.
            expires_s: how long it is good, seconds.
            count: how many devices may use it.
            certificate: the one that devices are shown, DER; None for an address without TLS.

        Raises:
            ConfigurationError: product or user have no such id.
        """
        try:
            terms.registration("checked when a device enrolls", None)
        except ValidationError as error:
            raise ConfigurationError([describe_faults(error)], "invite") from None
        code, now_s = make_code(os.urandom(SECRET_BYTES), certificate), self.tokens.wall()
        kept = (digest_of(code.secret), now_s, now_s + expires_s, count, json.dumps(asdict(terms)))
        with transaction(self.tokens.connection):
            old = "SELECT digest FROM code WHERE expires_at < ?"
            self.tokens.connection.execute(f"DELETE FROM enrolled WHERE digest IN ({old})", (now_s - _KEPT_S,))  # noqa: S608
            self.tokens.connection.execute("DELETE FROM code WHERE expires_at < ?", (now_s - _KEPT_S,))
            self.tokens.connection.execute("INSERT INTO code VALUES (?, ?, ?, ?, NULL, ?)", kept)
        return code, self._select("WHERE digest = :digest", digest=kept[0])[0]

    def all(self) -> list[Code]:
        """Newest first."""
        return self._select("ORDER BY created_at DESC")

    def find(self, secret: str) -> Code | None:
        return next(iter(self._select("WHERE digest = :digest", digest=digest_of(secret))), None)

    def revoke(self, code_id: str) -> bool:
        """Revoke a code that is open, or used (its devices could enroll again); whether there was one."""
        found = [each for each in self.all() if each.code_id == code_id and each.state in {"open", "used"}]
        with transaction(self.tokens.connection):
            for each in found:
                values = (self.tokens.wall(), each.digest)
                self.tokens.connection.execute("UPDATE code SET revoked_at = ? WHERE digest = ?", values)
        return bool(found)

    def check(self, secret: str, identifier: str) -> tuple[Code, float | None]:
        """Whether a device may enroll now; the same device may do so again with the same code while that is good.

        Returns:
            The code, and when this identifier enrolled with it first; None when it has not.

        Raises:
            Refused: the code is unknown, used, expired or revoked.
        """
        new = "ask for a new one (device-gateway devices invite)"
        code = self.find(secret)
        if code is None:
            raise Refused(403, _REFUSED, f"this code is unknown here: {new}")
        query = "SELECT at FROM enrolled WHERE digest = ? AND identifier = ?"
        (first_s,) = self.tokens.connection.execute(query, (code.digest, identifier)).fetchone() or (None,)
        if code.state != "open" and not (code.state == "used" and first_s is not None):
            raise Refused(403, _REFUSED, f"this code {_SAID[code.state]}: {new}")
        return code, first_s

    def enroll(self, secret: str, identifier: str, device_id: str) -> Secret:
        """Give a device a token, and note that it has enrolled: both or none, in one transaction.

        Raises:
            Refused: the code does not enroll it any more, or the device holds a valid token.
        """
        now_s, token = self.tokens.wall(), make_token()
        with transaction(self.tokens.connection):
            code, first_s = self.check(secret, identifier)
            is_retry = first_s is not None and 0.0 <= now_s - first_s <= RETRY_S
            if not (is_retry or code.terms.replace) and self.tokens.serves(device_id):
                # Else anybody with a code could take over a device by naming its identifier.
                text = f"the device {device_id} of this identifier holds a valid token: revoke it, or make a code "
                raise Refused(409, "device_has_token", f"{text}with device-gateway devices invite --replace")
            values = (code.digest, identifier, now_s)
            self.tokens.connection.execute("INSERT OR IGNORE INTO enrolled VALUES (?, ?, ?)", values)
            self.tokens.issue({device_id: token})
        return token

    def _select(self, which: str, **values: Any) -> list[Code]:
        rows = self.tokens.connection.execute(f"{_SELECT} {which}", {"now": self.tokens.wall(), **values})
        return [
            Code(digest, expires_at, count, enrolled, Terms(**json.loads(terms)), state)
            for digest, expires_at, count, enrolled, terms, state in rows
        ]


async def enroll(codes: Codes, service: Service, request: EnrollmentRequest) -> EnrollmentAnswer:
    """Register the device at the service, and give it a token.

    Raises:
        Refused: the code does not enroll it, or the service does not register it.
        ServiceError: the service did not register it; the code is as good as before.
        ConfigurationError, sqlite3.Error, OSError: the gateway's files cannot be used, or an id may have no token.
    """
    secret, identifier = request.secret.reveal(), request.device_identifier
    async with codes.locks.setdefault(secret, asyncio.Lock()):
        terms = codes.check(secret, identifier)[0].terms
        device_id = (await service.register(terms.registration(identifier, request.device_name))).device_id
        fault = id_fault(device_id) if device_id else "the service did not return its id"
        if fault is not None:
            raise ConfigurationError([fault], "registration")
        token = codes.enroll(secret, identifier, device_id)
    if terms.broker is not None:
        request_broker_update(codes.tokens.path.parent)
    return terms.handed(device_id, token, terms.product_id)
