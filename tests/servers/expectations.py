"""What has to be true of every consumer, whatever the server chose; and what a server's choices make impossible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.wire import extensions
from tests.servers.accounts import Stored
from tests.servers.covering import Case
from tests.servers.fronts import Front, Fronts
from tests.servers.server_words import Words, words_of

SPIN_PER_S = 40.0
"""More requests in a second, again and again, are a spin: here programs poll up to five times in a second, and post."""
SPIN_ALLOWANCE = 120


@dataclass(frozen=True, slots=True)
class Expectations:
    """What a consumer can do at a server.

    Attributes:
        offers: extensions that the server announces.
        runs_open_history: commands that were open at the first contact are work; elsewhere they are history.
        reads_whole_lists: False where the rest of a list lies on another host.
        hands_out_once: it lists each command once: who loses that answer never hears of the command.
        dates_to_minutes: times of commands have no seconds: where commands are pushed, one of the minute before the
            first contact may be work.
        words: what an agent's status says of the server.
        leads_elsewhere: links or redirects lead to another host; who does not follow them says so.
    """

    offers: frozenset[str] = frozenset()
    runs_open_history: bool = False
    reads_whole_lists: bool = True
    hands_out_once: bool = False
    dates_to_minutes: bool = False
    words: Words = field(default_factory=Words)
    leads_elsewhere: bool = False

    @property
    def knows_repeats(self) -> bool:
        """The server can tell a repeated request from a new one."""
        return extensions.IDEMPOTENCY_KEY in self.offers


def expectations_of(case: Case) -> Expectations:
    """What a consumer can do at the server of a case."""
    profile = case.profile
    offers = frozenset(name for name in extensions.ALL if profile.has(name))
    says_open = extensions.COMMAND_STATUS in offers and profile.status_words == "complete"
    is_whole = case.elsewhere != "next"
    words = words_of(profile, offers, is_whole=is_whole)
    once = profile.command_list == "once"
    to_minutes = profile.time_format == "minutes"
    return Expectations(offers, says_open, is_whole, once, to_minutes, words, bool(case.elsewhere))


def check_runs(
    runs: Counter[int], work: Sequence[int], history: Sequence[int], wanted: Expectations, *, pushed: bool = False
) -> list[str]:
    """Commands were carried out exactly once, and history not at all.

    Args:
        runs: number in the payload -> how often it was carried out.
        work: numbers that were sent after the first contact.
        history: numbers that were sent before, seconds ago.
        pushed: commands came by way of a gateway, which goes by their times.
    """
    once = {*work, *(history if wanted.runs_open_history else ())}
    unclear = set(history) if pushed and wanted.dates_to_minutes else set()
    problems = [f"command {number} ran {runs[number]} times" for number in sorted(once | unclear) if runs[number] > 1]
    if wanted.reads_whole_lists:
        problems += [f"command {number} never ran" for number in sorted(once) if not runs[number]]
    problems += [f"command {number} is history and ran" for number in sorted(set(runs) - once - unclear)]
    return problems


def check_readings(sent: set[int], stored: Sequence[Stored], name: str, wanted: Expectations) -> list[str]:
    """Readings are there, and once where the server knows repeats.

    Args:
        sent: numbers that have to be there.
        stored: what the server has.
        name: the reading that carries the number.
    """
    counts = Counter(int(row.values[name]) for row in stored if name in row.values)
    lost = sorted(sent - set(counts))
    problems = [f"{len(lost)} of {len(sent)} readings are not there: {lost[:5]}"] if lost else []
    doubled = sorted(number for number, count in counts.items() if count > 1)
    if doubled and wanted.knows_repeats:
        problems.append(f"{len(doubled)} readings are there more than once: {doubled[:5]}")
    return problems


def check_requests(front: Front, duration_s: float) -> list[str]:
    """Nothing was asked again and again without a pause."""
    most = SPIN_ALLOWANCE + SPIN_PER_S * duration_s
    if len(front.seen) <= most:
        return []
    paths = Counter(f"{seen.method} {seen.path}" for seen in front.seen).most_common(3)
    return [f"{len(front.seen)} requests in {duration_s:.1f} s: {paths}"]


def check_elsewhere(fronts: Fronts, secret_key: str) -> list[str]:
    """No credential went to the other host."""
    leaked = [head for head in fronts.elsewhere if b"x-api-key" in head.lower() or secret_key.encode() in head]
    return [f"another host was sent a key: {leaked[0].split(b' HTTP', 1)[0].decode()}"] if leaked else []


def shown(problems: Sequence[str], case: Case | None = None) -> str:
    """One on each line, after the choices that they came of."""
    return "\n".join([*([case.text] if case else []), *problems])
