"""How commands had to end and how they did: the workers' counts together, held against ``expect``. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from simulator.fleet.metrics.stages import EndState
from simulator.fleet.record import CommandEnds

ANY: Final = "any"
STRANGERS: Final = ""
"""The name under which commands stand that came to devices and that nobody here sent, as far as ids say."""


def joined_ends(found: Iterable[Sequence[CommandEnds]]) -> tuple[CommandEnds, ...]:
    """The streams of all workers, each once.

    Args:
        found: of each worker, in the order of the scenario's list.
    """
    streams: dict[int, CommandEnds] = {}
    for of_worker in found:
        for index, each in enumerate(of_worker):
            before = streams.get(index)
            streams[index] = each if before is None else _added(before, each)
    return tuple(streams[index] for index in sorted(streams))


def _added(one: CommandEnds, other: CommandEnds) -> CommandEnds:
    return CommandEnds(
        one.name,
        one.expect,
        one.sent + other.sent,
        one.refused + other.refused,
        one.unanswered + other.unanswered,
        dict(Counter(one.ends) + Counter(other.ends)),
    )


def ended_otherwise(streams: Sequence[CommandEnds], *, whole: bool) -> Iterator[str]:
    """A sentence for each stream whose commands did not end as the scenario expects.

    Where a list gives a command another id than the answer to its order did, nobody knows which of a device's commands
    it is: as many as came to devices under unknown ids, and ended as expected, may be those that stayed open.

    Args:
        streams: of the whole run.
        whole: the run reached its end; else commands that have not ended are nobody's fault.
    """
    strangers = Counter(next((each.ends for each in streams if each.name == STRANGERS), {}))
    for each in streams:
        if each.expect == ANY or each.name == STRANGERS:
            continue
        wrong = {state: count for state, count in each.ends.items() if count and state != each.expect}
        if not whole:
            wrong.pop(EndState.OPEN, None)
        covered = min(wrong.get(EndState.OPEN, 0), strangers[each.expect])
        strangers[each.expect] -= covered
        if covered:
            wrong[EndState.OPEN] -= covered
        ends = ", ".join(f"{count:,} {_word(state)}" for state, count in wrong.items() if count)
        total = sum(each.ends.values())
        if ends:
            yield f"of {total:,} commands {each.name!r} that should have ended as {each.expect}: {ends}"
        elif whole and each.sent and not total and not strangers[each.expect]:
            yield f"none of {each.sent:,} commands {each.name!r} is known to have ended as {each.expect}"


def _word(state: str) -> str:
    return "had not ended" if state == EndState.OPEN else state
