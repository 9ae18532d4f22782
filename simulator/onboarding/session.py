"""One action of the journey against a service: the request, and its answer put into the words of the journey."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from agent.errors import (
    AgentError,
    Conflict,
    ErrorAnswer,
    InvalidMessage,
    NotFound,
    RateLimited,
    ServerFault,
    ServiceError,
    TransportError,
)
from agent.wire.answers import one_line
from agent.wire.models import Device, JsonObject
from gateway.client import RegisterDevice
from simulator.onboarding.agreement import Known, contradictions, is_same, scan_contradictions
from simulator.onboarding.journey import Action, Answer
from simulator.onboarding.patience import Patience
from simulator.onboarding.run_file import DeviceRow, Outcome, RunFile
from simulator.wire.client import ServiceClient

NEVER_MADE: Final = "00000000-0000-7000-8000-000000000000"
"""A device id that no service gives."""
_CHANGED: Final = "-changed"


@dataclass(frozen=True, slots=True)
class Subject:
    """A label to onboard.

    Attributes:
        text: the code's text, sent as it was read.
        product_id: from the label.
        device_identifier: from the label.
        device_name: what the device is to be called.
        is_new: nobody has used the identifier before, so that the device has the name that it is registered with.
    """

    text: str
    product_id: str
    device_identifier: str
    device_name: str
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Accounts:
    """Who makes requests.

    Attributes:
        service: with the account's credentials.
        user_id: our user.
        other_user_id: another user of the same account.
        patience: how long a request waits for the quota.
        made: what is registered on the way.
    """

    service: ServiceClient
    user_id: str
    other_user_id: str = ""
    patience: Patience = field(default_factory=Patience)
    made: RunFile = field(default_factory=lambda: RunFile(None, {}))


@dataclass(frozen=True, slots=True)
class Observed:
    """The result of one action.

    Attributes:
        answer: one of the answers that the journey knows.
        detail: the service's own words or a measured particular, for a person.
        device_id: that the answer names.
        error: what the client raised, if it did.
    """

    answer: Answer
    detail: str = ""
    device_id: str = ""
    error: AgentError | None = None


class LabelSession:
    """The requests for one label, with what earlier answers said about it.

    Args:
        accounts: who makes them.
        subject: the label.
        ids: the device ids that answers gave so far, each with its session; shared by the sessions of one walk.
    """

    def __init__(self, accounts: Accounts, subject: Subject, ids: dict[str, LabelSession] | None = None) -> None:
        self._accounts = accounts
        self.subject = subject
        self._ids = {} if ids is None else ids
        self._owner = ""
        self._qr_info: JsonObject = {}
        self._is_known = False
        self._was_there = False
        self.is_new = subject.is_new
        self.device_id = ""

    @property
    def lacks_id(self) -> bool:
        """The device is registered, and no answer has named its id: a removal has to read the list first."""
        return self._is_known and not self.device_id

    def know(self, device_id: str) -> None:
        """The device is registered, by this id; empty when no answer has named it."""
        self._is_known, self.device_id = True, device_id

    def perform(self, action: Action) -> Observed:
        """Do one action and store what its answer says of the device; errors of the service are in the result."""
        observed = self.ask(action)
        known = self.device_id if self._is_known else ""
        is_linked = action in {Action.REGISTER, Action.REGISTER_OTHER} and observed.answer is Answer.LINKED
        if is_linked and known and observed.device_id not in {"", known}:
            detail = f"device_id: expected {known!r}, found {observed.device_id!r}"
            observed = replace(observed, answer=Answer.LINKED_AGAIN, detail=detail)
        self.learn(action, observed)
        return observed

    def ask(self, action: Action) -> Observed:
        """Do one action; several threads may at once, since nothing is stored before :meth:`learn`."""
        try:
            return self._accounts.patience.call(lambda: self._request(action))
        except (ServiceError, InvalidMessage) as error:
            return Observed(classify(error), one_line(str(error)), error=error)

    def learn(self, action: Action, observed: Observed) -> None:
        """Store what an answer says about this label's device."""
        answer = observed.answer
        if answer in {Answer.LINKED, Answer.LINKED_AGAIN} and action is not Action.REGISTER_CHANGED:
            self._is_known, self.device_id = True, observed.device_id
            is_other = action is Action.REGISTER_OTHER
            self._owner = self._accounts.other_user_id if is_other else self._accounts.user_id
            self._ids[observed.device_id] = self
        elif answer in {Answer.LISTED, Answer.LISTED_TWICE} and observed.device_id:
            self._is_known, self.device_id = True, observed.device_id
            self._ids[observed.device_id] = self
        elif answer is Answer.REMOVED:
            self._is_known = False
            self._ids.pop(self.device_id, None)  # a service may give the id to another device now
        elif answer is Answer.SHOWN_REGISTERED and not self._is_known:
            self._was_there = self._is_known = True

    def _request(self, action: Action) -> Observed:
        mine, other = self._accounts.user_id, self._accounts.other_user_id
        match action:
            case Action.SCAN:
                return self._scan()
            case Action.REGISTER:
                return self._register(mine)
            case Action.REGISTER_CHANGED:
                return self._register(mine, _CHANGED)
            case Action.REGISTER_OTHER:
                return self._register(other)
            case Action.LIST:
                return self._list(mine)
            case Action.LIST_OTHER:
                return self._list(other)
            case Action.REMOVE:
                return self._remove()

    def _scan(self) -> Observed:
        shown = self._accounts.service.scan_qr(self.subject.text)
        label = Known(self.subject.device_identifier, self.subject.product_id)
        if wrong := scan_contradictions(label, shown):  # a plain server may leave any member out
            return Observed(Answer.SHOWN_ANOTHER, "; ".join(wrong))
        self._qr_info = shown.qr_info
        product = shown.product
        says = product.product_id or product.name or shown.device_identifier or shown.qr_info
        if not says and shown.already_registered is None:
            return Observed(Answer.NONSENSE, "it shows no product, and no device_identifier")
        if shown.already_registered is None:
            return Observed(Answer.SHOWN_SILENT, product.name or "")
        self.is_new = self.is_new or not shown.already_registered
        return Observed(Answer.SHOWN_REGISTERED if shown.already_registered else Answer.SHOWN, product.name or "")

    def _register(self, user_id: str, suffix: str = "") -> Observed:
        subject = self.subject
        identifier, name = subject.device_identifier + suffix, subject.device_name + suffix
        row = DeviceRow(user_id, subject.product_id, identifier)
        is_ours = (suffix or not self._was_there) and self._accounts.made.begin(row)
        registration = RegisterDevice(
            user_id=user_id,
            product_id=subject.product_id,
            device_name=name,
            device_identifier=identifier,
            qr_info=self._qr_info or {"product_id": subject.product_id, "device_identifier": subject.device_identifier},
        )
        try:
            device = self._accounts.service.register_device(registration)
        except ErrorAnswer as error:
            if is_ours and not isinstance(error, ServerFault):  # after a 5xx nobody knows
                self._accounts.made.note(row, only_if=Outcome.BEGUN, outcome=Outcome.WAITING)
            raise
        registered = Known(identifier, subject.product_id, user_id, device_name=name if self.is_new else "")
        taken = self._of_others() | ({self.device_id} if suffix and self._is_known and self.device_id else set())
        wrong = contradictions(registered, device)
        if device.device_id in taken:
            wrong = (*wrong, f"device_id: expected one of its own, found {device.device_id!r} of another device")
        if wrong:  # the id may be anybody's: the file keeps it as begun, and the list says what was made
            return Observed(Answer.CONTRADICTED, "; ".join(wrong))
        if is_ours:
            self._accounts.made.note(row, outcome=Outcome.REGISTERED, device_id=device.device_id)
        detail = f"device {device.device_id}" if device.device_id else "the answer names no device_id"
        return Observed(Answer.LINKED, detail, device.device_id)

    def _list(self, user_id: str) -> Observed:
        listed = list(self._accounts.service.user_devices(user_id))
        of_others = self._of_others()
        found = [device for device in listed if is_same(self._known(user_id, self.device_id), device, of_others)]
        if not found:
            return Observed(Answer.NOT_LISTED, f"of {len(listed)} devices")
        if len(found) > 1:
            names = ", ".join(device.device_id or "without an id" for device in found)
            return Observed(Answer.LISTED_TWICE, f"devices {names}", found[0].device_id)
        if wrong := contradictions(self._known(user_id, ""), found[0]):
            return Observed(Answer.CONTRADICTED, "; ".join(wrong))
        return Observed(Answer.LISTED, f"device {found[0].device_id}", found[0].device_id)

    def _remove(self) -> Observed:
        if self.lacks_id:
            # A registration may be answered without a body (rule E2); the list is what names the device then.
            self.device_id = next((device.device_id for device in self._listed() if device.device_id), "")
            if not self.device_id:
                return Observed(Answer.NONSENSE, "neither the registration nor the list named a device_id to remove")
        device_id = self.device_id or NEVER_MADE
        removed = self._accounts.service.remove_device(device_id)
        if removed is not None and (wrong := contradictions(self._known(self._owner, device_id), removed)):
            return Observed(Answer.CONTRADICTED, "; ".join(wrong))
        for user_id in (self._accounts.user_id, self._accounts.other_user_id):
            row = DeviceRow(user_id, self.subject.product_id, self.subject.device_identifier)
            self._accounts.made.note(row, only_if=Outcome.REGISTERED, outcome=Outcome.REMOVED)
        return Observed(Answer.REMOVED, f"device {device_id}", device_id)

    def _listed(self) -> list[Device]:
        """This label's device in the lists of both users of our account."""
        found: list[Device] = []
        for user_id in filter(None, (self._accounts.user_id, self._accounts.other_user_id)):
            with contextlib.suppress(NotFound):  # a user to whom nothing is linked
                known, of_others = self._known(user_id, ""), self._of_others()
                listed = self._accounts.service.user_devices(user_id)
                found += [device for device in listed if is_same(known, device, of_others)]
        return found

    def _known(self, user_id: str, device_id: str) -> Known:
        """What is known of this label's device; without ``device_id`` the id that it has while it is registered."""
        current = self.device_id if self._is_known else ""
        name = self.subject.device_name if self.is_new else ""
        return Known(self.subject.device_identifier, self.subject.product_id, user_id, device_id or current, name)

    def _of_others(self) -> set[str]:
        return {device_id for device_id, session in self._ids.items() if device_id and session is not self}


_ANSWERS: Final[Mapping[type[AgentError], Answer]] = {
    NotFound: Answer.NOT_FOUND,
    Conflict: Answer.CONFLICT,
    RateLimited: Answer.RATE_LIMITED,
    ServerFault: Answer.FAULT,
    ErrorAnswer: Answer.REFUSED,  # after its own kinds above
    TransportError: Answer.NONE,
}


def classify(error: AgentError) -> Answer:
    """An error of the client in the words of the journey."""
    return next((answer for kind, answer in _ANSWERS.items() if isinstance(error, kind)), Answer.NONSENSE)
