"""Selects requests from the log, and verifies that as many came as were expected."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from simulator.service.errors import Invalid, invalid_all
from simulator.service.matching import SECRET_HEADERS, Difference, Matcher, RequestFacts, RequestMatch, named_ids
from simulator.service.request_log.entry import Entry
from simulator.service.request_log.masking import keeps_value
from simulator.service.storage import devices

if TYPE_CHECKING:
    from simulator.service.service import Service

NEAREST: Final = 5
"""Near misses that are shown."""
_IDS_AT_ONCE: Final = 1_000
_SHORT: Final = 200
_NAMED: Final = frozenset({"device_id", "product_id"})


@dataclass(frozen=True, slots=True)
class Selection:
    """Which requests are meant, beyond a match.

    Attributes:
        matcher: None for every request.
        statuses: of the answer; None for every one, and for none.
        since_ms: received then or later, by the service's clock.
        after: ``seq`` of the last request that is not meant any more.
        text: what path, query, body or answer hold, without regard to case.
    """

    matcher: Matcher | None = None
    statuses: range | None = None
    since_ms: int | None = None
    after: int | None = None
    text: str | None = None

    def is_in_window(self, entry: Entry) -> bool:
        """Whether it came late enough."""
        return (self.since_ms is None or entry.received_ms >= self.since_ms) and (
            self.after is None or entry.seq > self.after or not entry.seq
        )

    def differences(self, entry: Entry, facts: RequestFacts) -> list[Difference]:
        """What of a request does not fit; nothing when it is meant."""
        found = [] if self.matcher is None else self.matcher.differences(facts)
        if self.statuses is not None and (entry.status is None or entry.status not in self.statuses):
            wanted = str(self.statuses.start) if len(self.statuses) == 1 else f"{self.statuses.start // 100}xx"
            found.append(Difference("status", wanted, None if entry.status is None else str(entry.status)))
        if self.text is not None and self.text.lower() not in _texts(entry):
            found.append(Difference("text", self.text, None))
        return found


def _texts(entry: Entry) -> str:
    raw = b"\n".join([entry.path.encode("latin-1"), entry.query, entry.body, entry.answer])
    return raw.decode(errors="replace").lower()


def check_headers(wanted: RequestMatch, place: str = "match.") -> None:
    """Refuse a match by a header whose value the log does not keep: it would never fit.

    Args:
        wanted: the match.
        place: what stands before a field's name in the errors.

    Raises:
        Invalid: it names one.
    """
    values = {name: value for name, value in (wanted.headers or {}).items() if name.lower() not in SECRET_HEADERS}
    hidden = [name for name, value in values.items() if value is not None and not keeps_value(name)]
    if hidden:
        issue = "holds a secret, which the log does not keep: null asks whether it is absent"
        raise invalid_all([(f"{place}headers.{name[:_SHORT]}", issue) for name in hidden])


@dataclass(frozen=True, slots=True)
class MatchResult:
    """A request held against a selection.

    Attributes:
        differences: what does not fit.
        is_open: nobody can say whether it fits: of its body, or of its devices, too little is known.
    """

    entry: Entry
    differences: Sequence[Difference]
    is_open: bool = False

    @property
    def fits(self) -> bool:
        """Whether the request is meant."""
        return not self.differences


async def judge(service: Service, entries: Sequence[Entry], selection: Selection) -> list[MatchResult]:
    """Hold requests against a selection; those outside its window are left out."""
    meant = [entry for entry in entries if selection.is_in_window(entry)]
    if selection.matcher is None and selection.text is None:
        return [MatchResult(entry, selection.differences(entry, _NO_FACTS)) for entry in meant]
    callers = {key: (caller.manufacturer_seq, caller.api_key) for key, caller in service.callers.items()}
    names_things = selection.matcher is not None and selection.matcher.names_things
    facts = await asyncio.to_thread(lambda: [_read_facts(entry, callers, names_things) for entry in meant])
    products: dict[str, str] = {}
    if selection.matcher is not None and selection.matcher.wanted.product_id is not None:
        products = await _find_products(service, facts)
    return await asyncio.to_thread(
        lambda: [_judge(entry, one, products, selection) for entry, one in zip(meant, facts, strict=True)]
    )


_NO_FACTS: Final = RequestFacts("", "")


def _read_facts(entry: Entry, callers: Mapping[bytes, tuple[int, str]], names_things: bool) -> RequestFacts:
    headers = dict(entry.headers)
    account, api_key = callers.get(headers.get(b"x-api-key", b""), (None, None))
    if entry.caller is not None:
        account = entry.caller.manufacturer_seq
    ids = {} if entry.found is None else entry.found.ids
    body = entry.body if names_things else b""
    return RequestFacts(
        method=entry.method,
        path=entry.path,
        template=entry.template,
        ids=ids,
        device_ids=named_ids("device_id", ids, entry.query, body) if names_things else (),
        product_ids=named_ids("product_id", ids, entry.query, body) if names_things else (),
        account=account,
        api_key=api_key,
        headers=headers,
    )


async def _find_products(service: Service, facts: Iterable[RequestFacts]) -> dict[str, str]:
    ids = sorted({device_id for one in facts for device_id in one.device_ids})
    found: dict[str, str] = {}
    for first in range(0, len(ids), _IDS_AT_ONCE):
        part = ids[first : first + _IDS_AT_ONCE]
        found |= await service.look_up(functools.partial(devices.find_products, device_ids=part))
    return found


def _judge(entry: Entry, facts: RequestFacts, products: Mapping[str, str], selection: Selection) -> MatchResult:
    if products:
        of_devices = [products[one] for one in facts.device_ids if one in products]
        facts = replace(facts, product_ids=tuple(dict.fromkeys((*facts.product_ids, *of_devices))))
    differences = selection.differences(entry, facts)
    missing = {one.field for one in differences}
    is_open = entry.body_is_cut and bool(missing) and missing <= _NAMED | {"text"}
    if selection.text is not None and entry.answer_is_cut:
        is_open |= missing == {"text"}
    if not entry.seq:
        is_open |= bool(missing) and missing <= _NAMED | {"status", "text"}  # the rest of it is still to come
    return MatchResult(entry, differences, is_open)


@dataclass(frozen=True, slots=True)
class Expectation:
    """How many requests are expected.

    Attributes:
        at_least: the least number.
        at_most: the greatest; None for any.
    """

    at_least: int
    at_most: int | None


HOLDS: Final = "holds"
FAILS: Final = "does_not_hold"
INCONCLUSIVE: Final = "inconclusive"


@dataclass(frozen=True, slots=True)
class Verified:
    """What became of an expectation.

    Attributes:
        verdict: :data:`HOLDS`, :data:`FAILS` or :data:`INCONCLUSIVE`.
        count: requests that are meant.
        unknown: requests that may have been meant: they have left the log, or too little of them was kept.
        reason: why it cannot be judged.
        nearest: requests that are not meant, those with the least that differs first.
    """

    verdict: str
    count: int
    unknown: int
    reason: str | None
    nearest: Sequence[MatchResult]


def verify(judged: Sequence[MatchResult], dropped: int, expected: Expectation) -> Verified:
    """Whether as many requests came as were expected.

    Args:
        judged: all of the window that the log has.
        dropped: how many of the window have left the log.
        expected: how many there should be.
    """
    count = sum(one.fits for one in judged)
    unclear = sum(one.is_open for one in judged)
    least, most = count, count + unclear + dropped
    highest = most if expected.at_most is None else expected.at_most
    if expected.at_least <= least and most <= highest:
        verdict = HOLDS
    elif most < expected.at_least or least > highest:
        verdict = FAILS
    else:
        verdict = INCONCLUSIVE
    reasons = []
    if dropped:
        reasons.append(f"{dropped} requests of the time that is meant have left the log: raise --keep-requests")
    if unclear:
        reasons.append(f"too little is known of {unclear} requests: a body was cut, or the answer is still to come")
    misses = sorted((one for one in judged if not one.fits), key=lambda one: (len(one.differences), -one.entry.seq))
    return Verified(
        verdict, count, most - least, "; ".join(reasons) if verdict == INCONCLUSIVE else None, misses[:NEAREST]
    )


def read_statuses(text: str) -> range:
    """``404`` or ``4xx`` as statuses.

    Raises:
        Invalid: it is neither.
    """
    if len(text) == 3 and text[0] in "12345" and text.isascii():
        if text[1:].lower() == "xx":
            return range(int(text[0]) * 100, int(text[0]) * 100 + 100)
        if text.isdigit():
            return range(int(text), int(text) + 1)
    raise invalid_status()


def invalid_status() -> Invalid:
    """The error for a status that is none."""
    return invalid_all([("status", "must be a status such as 404, or a class of them such as 4xx")])
