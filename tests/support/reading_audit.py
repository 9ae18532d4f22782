"""What one device of a small fleet wrote down, held against what the service has: every reading is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from simulator.fleet.audit.ledger import digest_values
from simulator.fleet.runner import DeviceLedger


def find_wrong(ledger: DeviceLedger, stored: Iterable[tuple[int, Mapping[str, float]]]) -> Mapping[str, list[int]]:
    """The keys of readings that are lost, doubled, altered or unknown, by that word.

    Args:
        ledger: of the device.
        stored: key, such as its millisecond, and values of each reading that the service has.
    """
    stored = tuple(stored)
    sent = dict(ledger.facts.values())
    accepted = {ledger.facts[number][0] for number in ledger.accepted_numbers}
    refused = {ledger.facts[number][0] for number in ledger.refused_numbers} - accepted
    copies = Counter(key for key, _ in stored)
    wrong = {
        "lost": accepted - copies.keys(),
        "doubled": {key for key, count in copies.items() if count > 1},
        "altered": {key for key, values in stored if sent.get(key) not in {None, digest_values(values)}},
        "unknown": copies.keys() - sent.keys() | copies.keys() & refused,
    }
    return {word: sorted(keys) for word, keys in wrong.items() if keys}
