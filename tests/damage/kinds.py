"""Every kind of damage that is planted, one at a time, and what is said of it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.damage.books import ledgers
from tests.damage.given import given_commands, given_readings
from tests.damage.run import Kind
from tests.damage.stored import mentioned, stored_commands, stored_readings


@dataclass(frozen=True, slots=True)
class Chapter:
    """What one program has to find.

    Attributes:
        title, text: of the chapter.
    """

    title: str
    text: str
    kinds: tuple[Kind, ...]


AUDITED = Chapter(
    "The audit of a fleet",
    "A run that passed is copied, with the data of its service; then `fleet-simulator audit` looks at the copy.",
    (
        *stored_readings(),
        *stored_commands(),
        *given_readings(),
        *given_commands(),
        *ledgers(),
    ),
)
MENTIONED = Chapter(
    "Said, and no part of the verdict",
    """\
The order in which a service received readings, and how late it took them, may be its good right. The audit counts them;
a threshold on `audit.reordered` or `audit.late` makes such a run fail. The times of a stored command are held against
nothing: the ledgers do not have them.""",
    mentioned(),
)
