"""Whether the ledgers of a run are all there: what is missing in them proves nothing, neither loss nor its absence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from simulator.fleet.audit.folder import AuditedDevice
from simulator.fleet.audit.sorting import LedgerSurvey

_NAMES_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Coverage:
    """How the ledgers fit the list of devices.

    Attributes:
        without_ledger: indices of devices that no ledger speaks for.
        sentences: what is missing, one sentence each; empty when nothing is.
    """

    without_ledger: frozenset[int] = frozenset()
    sentences: tuple[str, ...] = ()


def cover(books: Sequence[LedgerSurvey], devices: Sequence[AuditedDevice]) -> Coverage:
    """Hold the ledgers against the list of devices.

    Args:
        books: what the ledgers hold.
        devices: of the run, as ``devices.csv`` has them.
    """
    covered = {index for book in books for index in _range_of(book)}
    alone = [each for each in devices if each.device not in covered]
    return Coverage(frozenset(each.device for each in alone), tuple(_sentences(books, devices, alone, covered)))


def _sentences(
    books: Sequence[LedgerSurvey], devices: Sequence[AuditedDevice], alone: Sequence[AuditedDevice], covered: set[int]
) -> Iterator[str]:
    if alone:
        names = ", ".join(each.name for each in alone[:_NAMES_SHOWN])
        yield f"{len(alone):,} of {len(devices):,} devices have no ledger ({names}): one of the folder is missing"
    if unlisted := len(covered - {each.device for each in devices}):
        yield f"{unlisted:,} devices that the ledgers have are missing in devices.csv: they cannot be read back"
    if len(covered) < sum(book.header.devices for book in books):
        yield "two ledgers are of the same devices: one of them is of another run"
    for book in books:
        worker = book.header.worker
        if book.counts is None:
            yield f"the ledger of worker {worker} has no end: it was killed, and its last second may be missing"
        elif book.lacks:
            lacks = ", ".join(f"{count:,} {name}" for name, count in book.lacks.items())
            yield f"the ledger of worker {worker} was cut: by the counts at its end these are missing: {lacks}"
        for gap in book.gaps:
            yield (
                f"the ledger of worker {worker} lacks {gap.records:,} records from {gap.from_s:.0f} s to "
                f"{gap.to_s:.0f} s: {gap.reason}"
            )


def _range_of(book: LedgerSurvey) -> range:
    return range(book.header.first_device, book.header.first_device + book.header.devices)
