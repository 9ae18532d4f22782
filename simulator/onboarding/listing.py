"""The list of a user's devices: read once for everybody who waits for it, and held against the answers at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from agent.errors import ServiceError
from agent.wire.devices import Device
from simulator.onboarding.outcomes import Audited, LabelResult, Outcome


class Lister:
    """The user's list, read once for everybody who waits for it."""

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


def hold_against_list(results: Sequence[LabelResult], lister: Lister) -> tuple[Audited, list[LabelResult]]:
    """Read the list once more: each device exactly once, and whose the ones are that were there before.

    Returns:
        What the list says, and the results with what it says about whose the ones are that were there before.
    """
    try:
        listed = lister.read()
    except ServiceError as error:
        return Audited(problem=str(error)), list(results)
    found: dict[tuple[str, str], int] = {}
    for device in listed:
        key = (device.product_id or "", device.device_identifier or "")
        found[key] = found.get(key, 0) + 1
    missing, doubled, left, judged = [], [], [], []
    for one in results:
        name = one.subject.device_identifier
        count = found.get((one.subject.product_id, name), 0) or found.get(("", name), 0)
        if one.outcome is Outcome.FOUND and not count:
            one = replace(one, outcome=Outcome.TAKEN, detail="it is registered, and not to this user")  # noqa: PLW2901
        judged.append(one)
        if one.outcome in {Outcome.REGISTERED, Outcome.FOUND} and not count:
            missing.append(name)
        if count > 1:
            doubled.append(name)
        if one.outcome is Outcome.REMOVED and count:
            left.append(name)
    return Audited(tuple(missing), tuple(doubled), tuple(left)), judged
