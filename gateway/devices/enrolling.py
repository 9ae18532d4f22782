"""Devices enroll with a code: they are registered at the service, and get a token and the way to the gateway."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.config.credentials import Credentials
from agent.config.model import ServiceConfig
from agent.errors import ConfigurationError
from agent.wire.enrollment import (
    SECRET_BYTES,
    EnrollmentAnswer,
    EnrollmentCode,
    EnrollmentRequest,
    make_code,
)
from gateway.devices.adding import Registrar, issue_tokens, wanted_device
from gateway.devices.broker_wanted import want_broker_update
from gateway.devices.invite_file import FILE_NAME, Invite, InviteAccess, InviteFile, WantedByInvite, digest_of_secret
from gateway.devices.issuing import service_client
from gateway.devices.token_file import FILE_NAME as TOKENS_FILE_NAME
from gateway.devices.tokens import Randomness

OVERLAP_S = 86_400.0
"""How long a token from before is good beside the new one; it ends when the new one is used."""


@dataclass(frozen=True, slots=True)
class InviteTerms:
    """Terms of an invitation.

    Attributes:
        wanted: what becomes of a device.
        reach: how it reaches the gateway.
        expires_s: for how long, seconds.
        count: for how many devices.
        serials: the identifiers that may enroll; None for any.
    """

    wanted: WantedByInvite
    reach: InviteAccess
    expires_s: float
    count: int = 1
    serials: frozenset[str] | None = None


def invite(
    state_dir: Path, terms: InviteTerms, certificate: bytes | None, now_s: float, randomness: Randomness
) -> tuple[EnrollmentCode, Invite]:
    """Make an invitation; its code is known at this moment only.

    Args:
        state_dir: of the gateway.
        terms: what it allows.
        certificate: the one that devices are shown, DER; None for an address without TLS.
        now_s: epoch seconds.
        randomness: such as :func:`secrets.token_bytes`.

    Raises:
        ConfigurationError: the terms contradict each other, or the file cannot be used.
    """
    _check(terms)
    code = make_code(randomness(SECRET_BYTES), certificate)
    made = Invite(
        digest_of_secret(code.secret),
        now_s,
        now_s + terms.expires_s,
        terms.count,
        None,
        terms.wanted,
        terms.reach,
        terms.serials,
    )
    with InviteFile(state_dir / FILE_NAME) as file:
        file.add(made)
    return code, made


def _check(terms: InviteTerms) -> None:
    wanted = terms.wanted
    if wanted.device_id is not None and (terms.count > 1 or terms.serials is not None):
        text = "--device-id is for one device: leave --count and --serials out, or invite to a product"
        raise ConfigurationError([text], "invite")
    wanted_device(
        device_id=wanted.device_id,
        product_id=wanted.product_id,
        identifier=None if wanted.device_id else "checked when a device enrolls",
        user_id=wanted.user_id,
        name=wanted.name,
        where="invite",
    )


def serials_in(path: Path) -> frozenset[str]:
    """The identifiers of a file, one in each line.

    Raises:
        ConfigurationError: it cannot be read, or has none.
    """
    try:
        lines: Sequence[str] = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            [f"{path} cannot be read: {error}; write one identifier in each line"], "serials"
        ) from None
    found = frozenset(line.strip() for line in lines if line.strip())
    if not found:
        raise ConfigurationError([f"{path} has no identifier: write one in each line"], "serials")
    return found


@dataclass(frozen=True, slots=True)
class Enroller:
    """Enrolls devices, for the HTTP front; any thread may call it.

    Attributes:
        state_dir: of the gateway: its tokens and invitations.
        service: where devices are registered.
        credentials: the key pair.
        wall: epoch seconds.
        randomness: such as :func:`secrets.token_bytes`.
    """

    state_dir: Path
    service: ServiceConfig
    credentials: Credentials
    wall: Callable[[], float] = time.time
    randomness: Randomness = secrets.token_bytes

    def enroll(self, request: EnrollmentRequest) -> EnrollmentAnswer:
        """Register the device where it is to be, and give it a token.

        Raises:
            EnrollmentRefused: the code does not enroll it.
            ServiceError: the service refused to register it, or did not answer; the code is as good as before.
            ConfigurationError: files of the gateway cannot be used.
        """
        with InviteFile(self.state_dir / FILE_NAME) as file:
            invited = file.claim(request.secret.reveal(), request.device_identifier, self.wall())
            try:
                device_id = self._find(invited, request)
                new = issue_tokens(
                    self.state_dir / TOKENS_FILE_NAME, [device_id], self.randomness, self.wall(), OVERLAP_S
                )[device_id]
            except BaseException:
                file.release(invited, request.device_identifier)
                raise
            file.settle(invited, request.device_identifier, device_id)
        if invited.reach.broker is not None:
            want_broker_update(self.state_dir)
        reach = invited.reach
        return EnrollmentAnswer(
            device_id=device_id,
            token=new.token,
            product_id=invited.wanted.product_id,
            url=reach.url,
            broker=reach.broker,
            plain=reach.plain,
            authority=reach.authority,
        )

    def _find(self, invited: Invite, request: EnrollmentRequest) -> str:
        wanted = invited.wanted
        if wanted.device_id is not None:
            return wanted.device_id
        asked = wanted_device(
            product_id=wanted.product_id,
            identifier=request.device_identifier,
            user_id=wanted.user_id,
            name=request.device_name or wanted.name,
        )
        if asked.registration is None:
            raise ConfigurationError(["the invitation names no product"], "enroll")
        with service_client(self.service, self.credentials) as client:
            return Registrar(client).register(asked.registration).device_id
