"""Devices enroll with a code: they are registered at the service, and get a token and the way to the gateway."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent.config.credentials import Credentials
from agent.config.model import ServiceConfig
from agent.errors import ConfigurationError
from agent.process.identity import as_owner_of
from agent.wire.enrollment import (
    SECRET_BYTES,
    EnrollmentAnswer,
    EnrollmentCode,
    EnrollmentRequest,
    make_code,
)
from gateway.devices.adding import Registrar, issue_tokens, wanted_device, with_valid_token
from gateway.devices.broker_wanted import want_broker_update
from gateway.devices.invite_file import (
    FILE_NAME,
    DeviceHasToken,
    Invite,
    InviteAccess,
    InviteFile,
    WantedByInvite,
    digest_of_secret,
)
from gateway.devices.issuing import service_client
from gateway.devices.token_file import FILE_NAME as TOKENS_FILE_NAME
from gateway.devices.tokens import Randomness

OVERLAP_S = 86_400.0
"""How long a token from before is good beside the new one; it ends when the new one is used."""
RETRY_S = 600.0
"""For so long a device whose answer was lost may come again with the same code, though it holds a token by now."""


@dataclass(frozen=True, slots=True)
class InviteTerms:
    """Terms of an invitation.

    Attributes:
        wanted: what becomes of a device.
        reach: how it reaches the gateway.
        expires_s: for how long, seconds.
        count: for how many devices.
    """

    wanted: WantedByInvite
    reach: InviteAccess
    expires_s: float
    count: int = 1


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
    )

    def keep() -> None:
        with InviteFile(state_dir / FILE_NAME) as file:
            file.add(made)

    as_owner_of(state_dir / FILE_NAME, keep)
    return code, made


def _check(terms: InviteTerms) -> None:
    wanted = terms.wanted
    if wanted.device_id is not None and terms.count > 1:
        text = "--device-id is for one device: leave --count out, or invite to a product"
        raise ConfigurationError([text], "invite")
    wanted_device(
        device_id=wanted.device_id,
        product_id=wanted.product_id,
        identifier=None if wanted.device_id else "checked when a device enrolls",
        user_id=wanted.user_id,
        name=wanted.name,
        where="invite",
    )


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
            DeviceHasToken: the identifier is that of a device with a valid token.
            ServiceError: the service refused to register it, or did not answer; the code is as good as before.
            ConfigurationError: files of the gateway cannot be used.
        """
        with InviteFile(self.state_dir / FILE_NAME) as file:
            invited, first_s = file.claim(request.secret.reveal(), request.device_identifier, self.wall())
            try:
                device_id = self._find(invited, request)
                if first_s is None or not 0.0 <= self.wall() - first_s <= RETRY_S:
                    self._refuse_to_replace(invited, device_id)
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

    def _refuse_to_replace(self, invited: Invite, device_id: str) -> None:
        """A code must not take a device's token from it: whoever has one could name the identifier of any device."""
        if invited.wanted.device_id is not None or invited.wanted.replace:
            return
        if with_valid_token(self.state_dir / TOKENS_FILE_NAME, [device_id], self.wall()):
            text = (
                f"the device {device_id} of this identifier holds a valid token: revoke it, or make a code with "
                "device-gateway devices invite --replace"
            )
            raise DeviceHasToken(text)

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
