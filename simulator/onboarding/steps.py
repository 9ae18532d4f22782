"""One action against a service: the request, its answer put into the words of the journey, the quota respected."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from agent.errors import (
    AgentError,
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
)
from agent.wire.answers import one_line
from agent.wire.base import JsonObject
from agent.wire.devices import Device
from agent.wire.identity import PROOF_PATH
from agent.wire.registration import RegisterDevice
from simulator.onboarding.agreement import Known, contradictions, is_same, near_miss, scan_contradictions
from simulator.onboarding.exchange import Exchange, RecordingTransport
from simulator.onboarding.journal import Journal
from simulator.onboarding.journey import STRANGERS, Action, Answer
from simulator.onboarding.quota import QuotaGate
from simulator.onboarding.tally import Tally
from simulator.wire.messages import ScanAnswer

MARK: Final = "onboard:"
"""What the name of everything begins with that a run of the commands makes, so that a cleanup finds it."""
NEVER_MADE: Final = "00000000-0000-7000-8000-000000000000"
"""A device id that no service gives."""
_CHANGED: Final = "-changed"


class OnboardingService(Protocol):
    """The onboarding group of the service, as :class:`simulator.wire.client.ServiceClient` has it."""

    def scan_qr(self, text: str, /) -> ScanAnswer:
        """``POST /onboarding/scan-qr``."""
        ...

    def register_device(self, registration: RegisterDevice, /, *, idempotency_key: str | None = None) -> Device:
        """``POST /onboarding/device``."""
        ...

    def user_devices(self, user_id: str, /) -> Iterable[Device]:
        """``GET /onboarding/user/{userId}/devices``."""
        ...

    def remove_device(self, device_id: str, /) -> object:
        """``DELETE /onboarding/device/{deviceId}``; a :class:`Device` where the answer says something of it."""
        ...


@dataclass(frozen=True, slots=True)
class Subject:
    """A label to onboard.

    Attributes:
        text: the code's text, sent as it was read.
        product_id: from the label.
        device_identifier: from the label.
        source: where it came from, for reports.
        device_name: what the device is to be called; its identifier when empty.
        is_new: nobody has used the identifier before, so that the device has the name that it is registered with.
    """

    text: str
    product_id: str
    device_identifier: str
    source: str = ""
    device_name: str = ""
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Account:
    """Credentials of a service, with their quota.

    Attributes:
        service: makes the requests.
        gate: the quota of these credentials.
        transport: records the exchanges; None where they are not recorded.
        name: for the journal; empty for the account that the run is about.
    """

    service: OnboardingService
    gate: QuotaGate
    transport: RecordingTransport | None = None
    name: str = ""

    def recording(self) -> contextlib.AbstractContextManager[list[Exchange]]:
        """The exchanges of this thread for the length of the block."""
        return contextlib.nullcontext([]) if self.transport is None else self.transport.recording()

    @contextlib.contextmanager
    def before_request(self, wait: Callable[[], object] | None) -> Iterator[None]:
        """Call ``wait`` before this thread's next request leaves; before the block where nothing is recorded."""
        if wait is not None and self.transport is not None:
            with self.transport.before_request(wait):
                yield
            return
        if wait is not None:
            wait()
        yield


@dataclass(frozen=True, slots=True)
class RunContext:
    """What all requests of a run share: accounts, users, journal.

    Attributes:
        account: the one that the run is about.
        user_id: our user.
        other_user_id: another user of the same account.
        stranger: another account; None when the run has no second credentials.
        journal: what was done.
        tally: counts every request; None counts none.
        key_of: the idempotency key of a registration, where the service has that extension: (product id, identifier)
            to text; None sends none.
        wall: seconds since the epoch.
    """

    account: Account
    user_id: str
    other_user_id: str = ""
    stranger: Account | None = None
    journal: Journal = field(default_factory=lambda: Journal(None, {}))
    tally: Tally | None = None
    key_of: Callable[[str, str], str] | None = None
    wall: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True)
class Observed:
    """The result of one action.

    Attributes:
        answer: one of the answers that the journey knows.
        detail: the service's own words or a measured particular, for a person.
        duration_s: the last request alone, answer read.
        waited_s: waits for the quota before it.
        error: what the client raised, if it did.
        device_id: that the answer names.
        last: the last exchange; None where nothing is recorded.
    """

    answer: Answer
    detail: str
    duration_s: float
    waited_s: float
    error: AgentError | None = None
    device_id: str = ""
    last: Exchange | None = None


_Result = tuple[Answer, str, str]
"""Answer, detail, device id."""


class LabelSession:
    """The requests for one label, with what earlier answers said about it.

    Args:
        context: accounts, users and journal.
        subject: the label.
        clock: monotonic seconds.
        ids: the device ids that answers gave so far, each with its session; shared by the sessions of one walk.
    """

    def __init__(
        self,
        context: RunContext,
        subject: Subject,
        clock: Callable[[], float],
        ids: dict[str, LabelSession] | None = None,
    ) -> None:
        self._context = context
        self._subject = subject
        self._clock = clock
        self._ids = {} if ids is None else ids
        self._owner = ""
        self.is_new = subject.is_new
        self._qr_info: JsonObject = {}
        self._is_known = False
        self._was_there = False
        self.device_id = ""

    @property
    def subject(self) -> Subject:
        """The label that the steps are about."""
        return self._subject

    @property
    def lacks_id(self) -> bool:
        """The device is registered, and no answer has named its id: a removal has to read the list first."""
        return self._is_known and not self.device_id

    def perform(self, action: Action, *, attempt: int = 1, intended_at: float | None = None) -> Observed:
        """Do one action and store what its answer says of the device; errors of the service are in the result."""
        observed = self.ask(action, attempt=attempt, intended_at=intended_at)
        if action in {Action.REGISTER, Action.REGISTER_OTHER} and self._is_another(observed):
            detail = "; ".join(contradictions(self._known("", ""), Device(device_id=observed.device_id)))
            observed = replace(observed, answer=Answer.LINKED_AGAIN, detail=detail)
        self.learn(action, observed)
        return observed

    def _is_another(self, observed: Observed) -> bool:
        """Whether a registration answered another device than the one that is registered."""
        known, answered = self.device_id if self._is_known else "", observed.device_id
        return observed.answer is Answer.LINKED and bool(known and answered) and known != answered

    def ask(
        self,
        action: Action,
        *,
        attempt: int = 1,
        intended_at: float | None = None,
        wait: Callable[[], object] | None = None,
    ) -> Observed:
        """Do one action; several threads may at once, since nothing is stored before :meth:`learn`.

        Args:
            action: who does what.
            attempt: 1 for the first.
            intended_at: when it was due, seconds since the epoch; now by default.
            wait: called once, right before the first request is sent; it holds this one back for the others of a race.
        """
        account = self._account(action)
        intended_at = self._context.wall() if intended_at is None else intended_at
        waited_s, limit = 0.0, RateLimited(429, "", "the quota of this key is used up")
        while True:
            entered = account.gate.enter(waited_s)
            if entered is None:
                detail = f"{limit}; the wait exceeds --max-wait-s {account.gate.max_wait_s:g}"
                return Observed(Answer.RATE_LIMITED, detail, 0.0, waited_s, limit)
            waited_s = entered
            started = self._clock()
            result: _Result = (Answer.NONE, "", "")
            error: AgentError | None = None
            with account.recording() as exchanges, account.before_request(wait):
                try:
                    result = self._requests()[action](account)
                except (ServiceError, InvalidMessage) as problem:
                    error = problem
            wait = None
            duration_s = self._clock() - started
            self._record(action, attempt, intended_at, exchanges)
            for exchange in exchanges:
                account.gate.observe(exchange.rate_limit)
            if isinstance(error, RateLimited):
                limit = error
                account.gate.refused(error.retry_after_s)
                attempt += 1
                continue
            last = next((exchange for exchange in reversed(exchanges) if not _is_proof(exchange)), None)
            if error is not None:
                return Observed(classify(error), one_line(str(error)), duration_s, waited_s, error, last=last)
            return Observed(result[0], one_line(result[1]), duration_s, waited_s, None, result[2], last)

    def learn(self, action: Action, observed: Observed) -> None:
        """Store what an answer says about this label's device."""
        if action in STRANGERS:
            return
        answer, device_id = observed.answer, observed.device_id
        if answer in {Answer.LINKED, Answer.LINKED_AGAIN} and action is not Action.REGISTER_CHANGED:
            self._is_known = True
            self.device_id = device_id
            self._owner = self._context.other_user_id if action is Action.REGISTER_OTHER else self._context.user_id
            self._ids[device_id] = self
        elif answer in {Answer.LISTED, Answer.LISTED_TWICE} and device_id:
            self._is_known, self.device_id = True, device_id
            self._ids[device_id] = self
        elif answer is Answer.REMOVED:
            self._is_known = False
            self._ids.pop(self.device_id, None)  # a service may give the id to another device now
        elif answer is Answer.SHOWN_REGISTERED and not self._is_known:
            self._was_there = self._is_known = True

    def _requests(self) -> Mapping[Action, Callable[[Account], _Result]]:
        mine, other = self._context.user_id, self._context.other_user_id
        return {
            Action.SCAN: self._scan,
            Action.REGISTER: lambda account: self._register(account, mine),
            Action.LIST: lambda account: self._list(account, mine),
            Action.REMOVE: self._remove,
            Action.REGISTER_CHANGED: lambda account: self._register(account, mine, _CHANGED),
            Action.REGISTER_OTHER: lambda account: self._register(account, other),
            Action.LIST_OTHER: lambda account: self._list(account, other),
            Action.SCAN_STRANGER: self._scan,
            Action.REGISTER_STRANGER: lambda account: self._register(account, other),
            Action.LIST_STRANGER: lambda account: self._list(account, mine),
            Action.REMOVE_STRANGER: self._remove,
        }

    def _account(self, action: Action) -> Account:
        if action not in STRANGERS:
            return self._context.account
        if self._context.stranger is None:
            raise ValueError(f"{action} needs a second account")
        return self._context.stranger

    def _scan(self, account: Account) -> _Result:
        shown = account.service.scan_qr(self._subject.text)
        label = Known(self._subject.device_identifier, self._subject.product_id)
        if wrong := scan_contradictions(label, shown):  # a plain server may leave any member out
            return Answer.SHOWN_ANOTHER, "; ".join(wrong), ""
        self._qr_info = shown.qr_info
        detail = shown.product.name or ""
        if not _has_known_member(shown):
            return Answer.NONSENSE, "it shows no product, and no device_identifier", ""
        if shown.already_registered is None:
            return Answer.SHOWN_SILENT, detail, ""
        self.is_new = self.is_new or not shown.already_registered
        return (Answer.SHOWN_REGISTERED if shown.already_registered else Answer.SHOWN), detail, ""

    def _register(self, account: Account, user_id: str, suffix: str = "") -> _Result:
        subject = self._subject
        identifier = subject.device_identifier + suffix
        place = {
            "account": account.name,
            "user_id": user_id,
            "product_id": subject.product_id,
            "device_identifier": identifier,
        }
        name = f"{subject.device_name}{suffix}" if subject.device_name else identifier
        makes_it = bool(suffix) or not self._was_there
        if makes_it:
            self._context.journal.add("registering", **place)
        registration = RegisterDevice(
            user_id=user_id,
            product_id=subject.product_id,
            device_name=name,
            device_identifier=identifier,
            qr_info=self._qr_info or {"product_id": subject.product_id, "device_identifier": subject.device_identifier},
        )
        keyed = (
            {}
            if self._context.key_of is None
            else {"idempotency_key": self._context.key_of(subject.product_id, identifier)}
        )
        try:
            device = account.service.register_device(registration, **keyed)
        except ErrorAnswer as error:
            # A 4xx is certain. After a 5xx nobody knows, and the intent stays until a list has been read.
            if makes_it and not isinstance(error, ServerFault):
                self._context.journal.add("unregistered", **place)
            raise
        registered = Known(identifier, subject.product_id, user_id, device_name=name if self.is_new else "")
        taken = {*self._of_others(), *([self.device_id] if suffix and self._is_known and self.device_id else ())}
        wrong = contradictions(registered, device)
        if device.device_id in taken:
            wrong = (*wrong, f"device_id: expected one of its own, found {device.device_id!r} of another device")
        if wrong:  # the id may be anybody's: the intent stays in the journal, and the list says what was made
            return Answer.CONTRADICTED, "; ".join(wrong), ""
        if makes_it and name.startswith(MARK) and not (device.device_name or MARK).startswith(MARK):
            self._context.journal.add("unregistered", **place)  # it was there before, under another name
        elif makes_it and device.device_id:
            self._context.journal.add("registered", **place, device_id=device.device_id)
        detail = f"device {device.device_id}" if device.device_id else "the answer names no device_id"
        return Answer.LINKED, detail, device.device_id

    def _list(self, account: Account, user_id: str) -> _Result:
        listed = list(account.service.user_devices(user_id))
        known, of_others = self._known(user_id, self.device_id), self._of_others()
        found = [device for device in listed if is_same(known, device, of_others)]
        if not found:
            return Answer.NOT_LISTED, near_miss(self._known(user_id, ""), listed, of_others), ""
        if len(found) > 1:
            names = ", ".join(device.device_id or "without an id" for device in found)
            return Answer.LISTED_TWICE, f"devices {names}", found[0].device_id
        if wrong := contradictions(self._known(user_id, ""), found[0]):
            return Answer.CONTRADICTED, "; ".join(wrong), ""
        return Answer.LISTED, f"device {found[0].device_id}", found[0].device_id

    def _known(self, user_id: str, device_id: str) -> Known:
        """What is known of this label's device; without ``device_id`` the id that it has while it is registered."""
        subject = self._subject
        current = self.device_id if self._is_known else ""
        name = (subject.device_name or subject.device_identifier) if self.is_new else ""
        return Known(subject.device_identifier, subject.product_id, user_id, device_id or current, name)

    def _of_others(self) -> set[str]:
        return {device_id for device_id, session in self._ids.items() if device_id and session is not self}

    def _listed_devices(self) -> list[Device]:
        """Find this label's device in the lists of both users of our account."""
        found: list[Device] = []
        for user_id in filter(None, (self._context.user_id, self._context.other_user_id)):
            with contextlib.suppress(NotFound):  # a user to whom nothing is linked
                devices = self._context.account.service.user_devices(user_id)
                known, of_others = self._known(user_id, self.device_id), self._of_others()
                found += [device for device in devices if is_same(known, device, of_others)]
        return found

    def _remove(self, account: Account) -> _Result:
        device_id = self.device_id
        if not device_id and self._is_known:
            # A registration may be answered without a body (rule E2); the list is what names the device then.
            device_id = next((device.device_id for device in self._listed_devices() if device.device_id), "")
            if not device_id:
                return Answer.NONSENSE, "neither the registration nor the list named a device_id to remove", ""
        device_id = device_id or NEVER_MADE
        removed = account.service.remove_device(device_id)
        if isinstance(removed, Device) and (wrong := contradictions(self._known(self._owner, device_id), removed)):
            return Answer.CONTRADICTED, "; ".join(wrong), ""
        self._context.journal.add("removed", account=account.name, device_id=device_id)
        return Answer.REMOVED, f"device {device_id}", device_id

    def _record(self, action: Action, attempt: int, intended_at: float, exchanges: list[Exchange]) -> None:
        if self._context.tally is None:
            return
        for exchange in exchanges:
            self._context.tally.record(
                what="proof" if _is_proof(exchange) else action.value,
                attempt=attempt,
                intended_at=intended_at,
                exchange=exchange,
            )


_ANSWERS: Final[tuple[tuple[type[AgentError], Answer], ...]] = (
    (NotFound, Answer.NOT_FOUND),
    (Conflict, Answer.CONFLICT),
    (RateLimited, Answer.RATE_LIMITED),
    (ServerFault, Answer.FAULT),
    (ErrorAnswer, Answer.REFUSED),  # after its own kinds above
    (TransportError, Answer.NONE),
)


def _is_proof(exchange: Exchange) -> bool:
    """Whether the client asked this by itself, to find out whose web page it had got; no action asks it."""
    path = exchange.path.partition("?")[0]
    return exchange.method == "GET" and path.endswith(PROOF_PATH) and "/onboarding/" not in path


def _has_known_member(shown: ScanAnswer) -> bool:
    """Whether the answer to a scan has any member that is known: an object of something else shows nothing."""
    product = shown.product
    return bool(product.product_id or product.name or shown.device_identifier or shown.qr_info) or (
        shown.already_registered is not None
    )


def classify(error: AgentError) -> Answer:
    """An error of the client in the words of the journey."""
    return next((answer for kind, answer in _ANSWERS if isinstance(error, kind)), Answer.NONSENSE)


def ends_the_run(error: AgentError | None) -> bool:
    """Whether every further request would fare the same: no service there, or not with these keys."""
    return isinstance(error, (TransportError, Unauthorized, Forbidden))
