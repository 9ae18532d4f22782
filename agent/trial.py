"""Something new on trial: a release of the agent, or a configuration. It is kept, or what was before it comes back.

Each step is on the disk before the next one begins: the trial, each start before it can go wrong, the verdict. So a
crash at any point leaves a step that the next process can do again.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final, Self

TRYING: Final = "trying"
KEPT: Final = "kept"
ROLLED_BACK: Final = "rolled_back"
_REASON_CHARACTERS: Final = 500


@dataclass(frozen=True, slots=True)
class Trial:
    """How a trial stands.

    Attributes:
        phase: :data:`TRYING`, :data:`KEPT` or :data:`ROLLED_BACK`.
        starts: how many starts there were with it; after it was taken back, with what was before it.
        reason: why it was taken back, one sentence.
        command_id: of the command that brought it, which is answered when the trial is over; empty when none did.
        probation_s: how long all has to be well with it, seconds.
    """

    phase: str = TRYING
    starts: int = 0
    reason: str = ""
    command_id: str = ""
    probation_s: float = 120.0

    @classmethod
    def read(cls, members: object) -> Self | None:
        """The trial that a file has as a JSON object, without members that this version does not know; or None."""
        if not isinstance(members, dict) or members.get("phase") not in {TRYING, KEPT, ROLLED_BACK}:
            return None
        names = {each.name for each in fields(cls)}
        try:
            trial = cls(**{name: value for name, value in members.items() if name in names})
            return trial if trial.starts >= 0 else None
        except TypeError:
            return None

    def started(self, most: int) -> Self:
        """It with one more start, or taken back when there were ``most`` of them."""
        if self.starts < most:
            return replace(self, starts=self.starts + 1)
        return self.taken_back(f"{self.starts} starts with it did not last until the end of the probation")

    def taken_back(self, reason: str) -> Self:
        """It did not do: what was before it counts from now on."""
        return replace(self, phase=ROLLED_BACK, starts=0, reason=" ".join(reason.split())[:_REASON_CHARACTERS])
