"""One action against a service: the request, its answer put into the words of the journey, the quota respected."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from agent.errors import (
    Conflict,
    ErrorAnswer,
    Forbidden,
    InvalidMessage,
    NotFound,
    RateLimited,
    ServerFault,
    ServiceError,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
)
from agent.wire.base import JsonObject
from agent.wire.devices import Device
from agent.wire.onboarding import RegisterDevice, ScanAnswer
from simulator.onboarding.journey import Action, Answer

RETRY_AFTER_DEFAULT_S: Final = 5.0
"""The wait after a 429 that names none: twelve tries see the next minute of a quota that is counted per minute."""


class OnboardingService(Protocol):
    """The onboarding group of the service, as :class:`agent.wire.client.ServiceClient` has it."""

    def scan_qr(self, text: str, /) -> ScanAnswer:
        """``POST /onboarding/scan-qr``."""
        ...

    def register_device(self, registration: RegisterDevice, /) -> Device:
        """``POST /onboarding/device``."""
        ...

    def user_devices(self, user_id: str, /) -> Iterable[Device]:
        """``GET /onboarding/user/{userId}/devices``."""
        ...

    def remove_device(self, device_id: str, /) -> object:
        """``DELETE /onboarding/device/{deviceId}``; the answer's content says nothing more."""
        ...


@dataclass(frozen=True, slots=True)
class Subject:
    """A label to onboard.

    Attributes:
        text: the code's text, sent as it was read.
        product_id: from the label.
        device_identifier: from the label.
        source: where it came from, for reports.
    """

    text: str
    product_id: str
    device_identifier: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """Time, injected.

    Attributes:
        clock: monotonic seconds.
        sleep: waits that many seconds.
        max_wait_s: how long one step may wait for the quota in all.
    """

    clock: Callable[[], float]
    sleep: Callable[[float], None]
    max_wait_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Observed:
    """What one action brought.

    Attributes:
        answer: in the words of the journey.
        detail: the service's own words or a measured particular, for a person.
        duration_s: the last request alone, answer read.
        waited_s: waits for the quota before it.
        error: what the client raised, if it did.
    """

    answer: Answer
    detail: str
    duration_s: float
    waited_s: float
    error: ServiceError | None = None


class LabelSession:
    """The requests for one label, with what earlier answers said about it.

    Args:
        service: asked.
        subject: the label.
        user_id: the account that the device is linked to.
        timing: clock, sleep and patience.
    """

    def __init__(self, service: OnboardingService, subject: Subject, user_id: str, timing: Timing) -> None:
        self._service = service
        self._subject = subject
        self._user_id = user_id
        self._timing = timing
        self._qr_info: JsonObject = {}
        self.device_id = ""

    def perform(self, action: Action) -> Observed:
        """Do one action; never raises for what the service or the network does."""
        request = {
            Action.SCAN: self._scan,
            Action.REGISTER: self._register,
            Action.LIST: self._list,
            Action.REMOVE: self._remove,
        }[action]
        waited_s = 0.0
        while True:
            started = self._timing.clock()
            try:
                answer, detail = request()
            except RateLimited as limit:
                wait_s = RETRY_AFTER_DEFAULT_S if limit.retry_after_s is None else max(0.1, limit.retry_after_s)
                if waited_s + wait_s > self._timing.max_wait_s:
                    detail = f"{limit}; a wait of {wait_s:g} s more exceeds --max-wait-s {self._timing.max_wait_s:g}"
                    return Observed(Answer.RATE_LIMITED, detail, self._timing.clock() - started, waited_s, limit)
                self._timing.sleep(wait_s)
                waited_s += wait_s
            except InvalidMessage as fault:
                duration_s = self._timing.clock() - started
                return Observed(Answer.NONSENSE, str(fault), duration_s, waited_s, UnexpectedAnswer(str(fault)))
            except ServiceError as error:
                duration_s = self._timing.clock() - started
                return Observed(classify(error), str(error), duration_s, waited_s, error)
            else:
                return Observed(answer, detail, self._timing.clock() - started, waited_s)

    def _scan(self) -> tuple[Answer, str]:
        shown = self._service.scan_qr(self._subject.text)
        expected = (self._subject.product_id, self._subject.device_identifier)
        # A plain server may leave either out; what it does say must be the label's.
        answered = (
            shown.product.product_id or self._subject.product_id,
            shown.device_identifier or self._subject.device_identifier,
        )
        if answered != expected:
            return Answer.SHOWN_ANOTHER, f"product {answered[0]!r}, identifier {answered[1]!r}"
        self._qr_info = shown.qr_info
        detail = shown.product.name or ""
        return (Answer.SHOWN_REGISTERED if shown.already_registered else Answer.SHOWN), detail

    def _register(self) -> tuple[Answer, str]:
        subject = self._subject
        device = self._service.register_device(
            RegisterDevice(
                user_id=self._user_id,
                product_id=subject.product_id,
                device_name=subject.device_identifier,
                device_identifier=subject.device_identifier,
                qr_info=self._qr_info
                or {"product_id": subject.product_id, "device_identifier": subject.device_identifier},
            )
        )
        self.device_id = device.device_id
        return Answer.LINKED, f"device {device.device_id}" if device.device_id else "the answer names no device_id"

    def _list(self) -> tuple[Answer, str]:
        for device in self._service.user_devices(self._user_id):
            if self._is_ours(device):
                self.device_id = self.device_id or device.device_id
                return Answer.LISTED, f"device {device.device_id}"
        return Answer.NOT_LISTED, ""

    def _is_ours(self, device: Device) -> bool:
        if self.device_id and device.device_id == self.device_id:
            return True
        return (
            device.device_identifier == self._subject.device_identifier
            and (device.product_id or self._subject.product_id) == self._subject.product_id
        )

    def _remove(self) -> tuple[Answer, str]:
        if not self.device_id:
            return Answer.NONSENSE, "neither the registration nor the list named a device_id to remove"
        self._service.remove_device(self.device_id)
        return Answer.REMOVED, f"device {self.device_id}"


_ANSWERS: Final[tuple[tuple[type[ServiceError], Answer], ...]] = (
    (NotFound, Answer.NOT_FOUND),
    (Conflict, Answer.CONFLICT),
    (RateLimited, Answer.RATE_LIMITED),
    (ServerFault, Answer.FAULT),
    (ErrorAnswer, Answer.REFUSED),  # after its own kinds above
    (TransportError, Answer.NONE),
)


def classify(error: ServiceError) -> Answer:
    """An error of the client in the words of the journey."""
    return next((answer for kind, answer in _ANSWERS if isinstance(error, kind)), Answer.NONSENSE)


def ends_the_run(error: ServiceError | None) -> bool:
    """Whether every further request would fare the same: no service there, or not with these keys."""
    return isinstance(error, (TransportError, Unauthorized, Forbidden))
