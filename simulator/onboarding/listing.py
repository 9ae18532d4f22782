"""The list of a user's devices: one reading for all threads that wait, and compared with the answers at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from agent.errors import ServiceError
from agent.wire.devices import Device
from simulator.onboarding.agreement import Known, contradictions, is_same, near_miss
from simulator.onboarding.outcomes import LabelResult, ListAudit, Outcome


class Lister:
    """Reads the user's list; threads that wait at the same time share one reading."""

    def __init__(self, read: Callable[[], list[Device]]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._begun = 0
        self._done = 0
        self._listed: list[Device] = []

    def read(self) -> list[Device]:
        """A list whose reading began after this call.

        Raises:
            ServiceError: it cannot be read.
        """
        with self._lock:
            wanted = self._begun + 1
        with self._reading:
            if self._done < wanted:
                with self._lock:
                    self._begun += 1
                    number = self._begun
                self._listed = self._read()
                self._done = number
            return self._listed


def compare_with_list(
    results: Sequence[LabelResult], lister: Lister, user_id: str
) -> tuple[ListAudit, list[LabelResult]]:
    """Read the list once more: each device exactly once, as it was registered for this user.

    Returns:
        What the list says, and the results with what it says about whose the ones are that were there before.
    """
    try:
        listed = lister.read()
    except ServiceError as error:
        return ListAudit(problem=str(error)), list(results)
    by_id, by_identifier = _groups(listed)
    of_labels = {one.device_id for one in results if one.device_id}
    missing, doubled, left, contradicted, judged = [], [], [], [], []
    for one in results:
        known, name = _known(one, user_id), one.subject.device_identifier
        near = {id(device): device for device in (*by_id.get(one.device_id, ()), *by_identifier.get(name, ()))}
        found = [device for device in near.values() if is_same(known, device, of_labels)]
        if one.outcome is Outcome.FOUND and not found:
            one = replace(one, outcome=Outcome.TAKEN, detail="it is registered, and not to this user")
        judged.append(one)
        if one.outcome in {Outcome.REGISTERED, Outcome.FOUND} and not found:
            missing.append(name)
        if len(found) > 1:
            doubled.append(name)
        if one.outcome is Outcome.REMOVED and found:
            left.append(name)
        wrong = contradictions(known, found[0]) if found else ()
        wrong = wrong or tuple(filter(None, (near_miss(known, near.values(), of_labels),)))
        if wrong and one.outcome in {Outcome.REGISTERED, Outcome.FOUND}:
            contradicted.append(f"{name}: {'; '.join(wrong)}")
    return ListAudit(tuple(missing), tuple(doubled), tuple(left), tuple(contradicted)), judged


def _groups(listed: Sequence[Device]) -> tuple[dict[str, list[Device]], dict[str, list[Device]]]:
    by_id: dict[str, list[Device]] = {}
    by_identifier: dict[str, list[Device]] = {}
    for device in listed:
        if device.device_id:
            by_id.setdefault(device.device_id, []).append(device)
        by_identifier.setdefault(device.device_identifier or "", []).append(device)
    return by_id, by_identifier


def _known(one: LabelResult, user_id: str) -> Known:
    subject = one.subject
    name = (subject.device_name or subject.device_identifier) if one.is_new else ""
    return Known(subject.device_identifier, subject.product_id, user_id, one.device_id, name)
