"""What the answers of a limiter's test come to, check by check. Pure: answers in, results out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from simulator.fleet.target.limiter.values import (
    UNAUTHORIZED,
    CheckResult,
    LimiterRules,
    Reply,
    judged,
    skipped,
)

_SECOND_S: Final = 1.0
_WHOLE_SECOND_S: Final = 1.5
"""Headers give whole seconds, rounded up or down, and an answer takes a moment."""


def check_count(name: str, expected: str, replies: Sequence[Reply], rules: LimiterRules) -> CheckResult:
    """One window's requests of one key: as many as the quota are let through, and every further one gets 429."""
    allowed = sum(reply.is_allowed for reply in replies)
    limited = sum(reply.is_limited for reply in replies)
    others = Counter(reply.status for reply in replies if not reply.is_allowed and not reply.is_limited)
    observed = f"of {len(replies):,} requests in one window {allowed:,} were let through and {limited:,} got 429"
    if others:
        others_text = ", ".join(f"{count:,} x {status or 'no answer'}" for status, count in others.items())
        observed += f", besides {others_text}"
    held = abs(allowed - rules.quota) <= rules.slack and allowed + limited == len(replies)
    return judged(name, expected, observed, held=held)


def check_headers(replies: Sequence[Reply], rules: LimiterRules) -> CheckResult:
    """The quota headers in the answers of one key in one window fit the requests that were made."""
    name = "headers"
    expected = f"quota {rules.quota:,}, one less left with each request, 0 with each 429, at most one window to wait"
    stated = [(reply, limit) for reply in replies if (limit := reply.limit) is not None]
    if not stated:
        return skipped(name, expected, "the answers say nothing about the quota")
    faults = Counter[str]()
    ahead_s = _clock_ahead_s(replies)
    left = sorted((limit.remaining for reply, limit in stated if reply.is_allowed and limit.remaining is not None))
    first = rules.quota - 1
    if left and left[::-1] != list(range(first, first - len(left), -1)):
        faults[f"what was left went from {left[-1]:,} to {left[0]:,} over {len(left):,} requests"] += 1
    for reply, limit in stated:
        if limit.limit is not None and limit.limit != rules.quota:
            faults[f"they state a quota of {limit.limit:,}"] += 1
        if reply.is_limited and limit.remaining:
            faults["something is left although the answer is 429"] += 1
        if limit.reset_s is not None and not 0 <= limit.reset_s <= rules.window_s + _WHOLE_SECOND_S:
            faults["the next window is further away than a window is long"] += 1
        if limit.window_s is not None and limit.window_s != rules.window_s:
            faults[f"they state a window of {limit.window_s:g} s"] += 1
        if _disagree(reply, ahead_s):
            faults["RateLimit and X-RateLimit-* state different things"] += 1
    if len(stated) < len(replies):
        faults["some answers say nothing"] = len(replies) - len(stated)
    observed = "; ".join(f"{fault} ({count:,} answers)" for fault, count in faults.items())
    return judged(name, expected, observed or f"all {len(stated):,} answers state what is the case", held=not faults)


def _clock_ahead_s(replies: Sequence[Reply]) -> float:
    """How far the target's wall clock is ahead of the test's own, less a second at most.

    ``Date`` is cut to whole seconds, and a busy server writes it anew when it finds the time: the answer in which it is
    furthest ahead is the one in which it is the least old.
    """
    return max((reply.date_s - reply.received_s for reply in replies if reply.date_s is not None), default=0.0)


def _disagree(reply: Reply, ahead_s: float) -> bool:
    stated = reply.stated_limits
    if len(stated) < 2:
        return False
    one, other = stated[0], stated[1]
    if one.remaining != other.remaining:
        return True
    if one.reset_s is None or other.reset_s is None:
        return False
    apart_s = other.reset_s - one.reset_s
    # A reset that is a time counts from the answer's own Date: that one's age is no fault of the limiter's.
    age_s = 0.0 if reply.date_s is None else max(0.0, reply.received_s + ahead_s - reply.date_s)
    return not -_WHOLE_SECOND_S <= apart_s <= _WHOLE_SECOND_S + age_s


def check_retry_after(replies: Sequence[Reply], rules: LimiterRules) -> CheckResult:
    """Every 429 says how long to wait, and whoever waits so long is let through.

    Args:
        replies: of one key, in the order of sending, into the next window.
        rules: the promise.
    """
    name, expected = "retry_after", f"each 429 names a wait of at most {rules.window_s:g} s, and it is long enough"
    limited = [reply for reply in replies if reply.is_limited]
    if not limited:
        return skipped(name, expected, "there was no 429")
    waits = [(reply, wait_s) for reply in limited if (wait_s := reply.retry_after_s) is not None]
    if len(waits) < len(limited):
        return judged(name, expected, f"{len(limited) - len(waits):,} of {len(limited):,} name none", held=False)
    longest = max(wait_s for _, wait_s in waits)
    if longest > rules.window_s + _SECOND_S or min(wait_s for _, wait_s in waits) < 0:
        return judged(name, expected, f"one asks to wait {longest:,} s", held=False)
    over_at, (_, wait_s) = min(
        ((reply.received_s + wait_s, (reply, wait_s)) for reply, wait_s in waits), key=lambda item: item[0]
    )
    again = sum(reply.sent_s > over_at for reply in limited)
    if again:
        late_s = max(reply.sent_s for reply in limited) - over_at
        observed = f"after a wait of {wait_s} s there were {again:,} more 429s, the last {late_s:.1f} s later"
        return judged(name, expected, observed, held=False)
    return judged(name, expected, f"all {len(limited):,} name one, the longest {longest} s, and keep it", held=True)


def check_fairness(storm: Sequence[Reply], quiet: Mapping[int, Sequence[Reply]]) -> CheckResult:
    """One key's storm costs the others nothing.

    Args:
        storm: of the key that asked for more than its quota.
        quiet: of the other keys, which stayed below theirs meanwhile, by key.
    """
    name, expected = "fairness", "a key below its quota is let through, whatever another key does"
    if not quiet:
        return skipped(name, expected, "it needs two key pairs: name more in target.keys")
    asked = sum(map(len, quiet.values()))
    denied = sum(not reply.is_allowed for replies in quiet.values() for reply in replies)
    refused = sum(reply.is_limited for reply in storm)
    wrong = 0
    for replies in quiet.values():
        left = [limit.remaining for reply in replies if (limit := reply.limit) and limit.remaining is not None]
        wrong += bool(left) and max(left) - min(left) != len(left) - 1
    observed = (
        f"while one key got {refused:,} 429s, {asked - denied:,} of {asked:,} requests of {len(quiet)} others went"
    )
    if wrong:
        observed += f" through, but the quota of {wrong} shrank by more than they asked"
        return judged(name, expected, observed, held=False)
    return judged(name, expected, f"{observed} through", held=denied == 0)


def check_edge(probes: Sequence[Reply], rules: LimiterRules) -> CheckResult:
    """A key without quota is refused until the window's edge, and let through right after it.

    Args:
        probes: of a key that used up its quota, one after the other, from a 429 on until the first that is let through.
        rules: the promise.
    """
    name, expected = "edge", "429 until the edge that Retry-After names, to a second, then let through"
    waits = [reply for reply in probes if reply.is_limited and reply.retry_after_s is not None]
    if not waits:
        return skipped(name, expected, "no 429 named a wait")
    opened = next((reply for reply in probes if reply.is_allowed), None)
    if opened is None:
        return judged(name, expected, f"still 429 {rules.window_s:g} s and more after the first", held=False)
    edge_s = min(reply.received_s + (reply.retry_after_s or 0) for reply in waits)
    off_s = opened.received_s - edge_s
    observed = f"let through {abs(off_s):.1f} s {'after' if off_s >= 0 else 'before'} the end of the named wait"
    return judged(name, expected, observed, held=abs(off_s) <= _WHOLE_SECOND_S)


def check_calendar(opened: Reply | None, rules: LimiterRules) -> CheckResult:
    """The window began at a whole multiple of its length on the target's own clock."""
    name, expected = "calendar", f"windows begin at whole multiples of {rules.window_s:g} s"
    if opened is None or opened.date_s is None:
        return skipped(name, expected, "the target does not send its time (Date)")
    # Date has whole seconds, and servers write it once a second: it may still be the second before.
    off_s = (opened.date_s + rules.window_s / 2) % rules.window_s - rules.window_s / 2
    observed = f"it began {abs(off_s):.0f} s {'after' if off_s >= 0 else 'before'} one, by the target's clock"
    return judged(name, expected, observed, held=abs(off_s) <= _WHOLE_SECOND_S)


def check_unauthorized(
    refusals: Sequence[Reply], before: Reply, after: Reply, whole_count: CheckResult | None
) -> CheckResult:
    """Requests with a wrong key pair get 401, even for a key without quota, and cost nobody anything.

    Args:
        refusals: what came for wrong key pairs.
        before: of the key whose name they carried, right before most of them.
        after: of the same key, right after them.
        whole_count: the count of that window, for targets whose answers say nothing about the quota, or one that is
            used up by so few requests.
    """
    name, expected = "unauthorized", "a wrong key pair gets 401, and takes nothing from the key that it names"
    others = Counter(reply.status for reply in refusals if reply.status != UNAUTHORIZED)
    if others:
        return judged(name, expected, f"wrong key pairs were answered {dict(others)}", held=False)
    told_of = [reply for reply in (before, after) if reply.is_allowed]
    left = [limit.remaining for reply in told_of if (limit := reply.limit) and limit.remaining is not None]
    if len(left) == 2:
        cost = left[0] - left[1] - 1
        return judged(name, expected, f"{len(refusals):,} x 401 cost the key {cost:,} requests", held=cost == 0)
    if whole_count is None:
        return skipped(name, expected, "the answers say nothing about the quota")
    observed = f"{len(refusals):,} x 401, and {whole_count.observed}"
    return judged(name, expected, observed, held=whole_count.outcome == "held")


def check_recovery(obedient: Reply, wait_s: float, rules: LimiterRules) -> CheckResult:
    """Whoever obeyed ``Retry-After`` is let through, with a whole quota again.

    Args:
        obedient: the first request after the wait.
        wait_s: how long it was.
        rules: the promise.
    """
    name, expected = "recovery", f"let through after the wait, with {rules.quota - 1:,} requests left"
    if not obedient.is_allowed:
        return judged(name, expected, f"after {wait_s:g} s as asked the answer is {obedient.status}", held=False)
    limit = obedient.limit
    left = None if limit is None else limit.remaining
    held = left is None or abs(rules.quota - 1 - left) <= rules.slack
    observed = f"let through after {wait_s:g} s as asked" + ("" if left is None else f", with {left:,} left")
    return judged(name, expected, observed, held=held)
