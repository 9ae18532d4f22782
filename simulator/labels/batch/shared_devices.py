"""Finds batches in neighbouring folders with labels of the same devices, which would be printed twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simulator.labels.batch.manifest import ReadManifest, read_manifest
from simulator.labels.batch.orders import Orders, RowOrders, SerialOrders

_FOLDERS_MAX: Final = 1000
_LABELS_MAX: Final = 1_000_000
"""Labels of other batches that are read; runs of serials are compared without reading any."""
_NO_MANIFEST: Final = (OSError, ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True, slots=True)
class _Shared:
    """What another batch has in common with this one.

    Attributes:
        folder: of the other batch.
        count: labels of the same devices.
        names: the identifiers, or the first and the last of many, for a sentence.
        free: the first serial behind the other batch's; 0 where serials say nothing.
    """

    folder: Path
    count: int
    names: str
    free: int = 0


def shared_devices(orders: Orders, out: Path, manifest_name: str) -> tuple[str, ...]:
    """Warn of batches in the folders beside ``out`` that have labels of this one's devices.

    Args:
        orders: the labels that are to be made.
        out: their folder; what is in it already is not looked at.
        manifest_name: of the file in a folder that says which labels are there.

    Returns:
        A sentence that names the batch with the most labels in common, and one where some were not compared.
    """
    found: list[_Shared] = []
    unread: list[Path] = []
    own: dict[tuple[str, str], None] | None = None
    labels_left = _LABELS_MAX
    for folder, read in _batches_beside(out.resolve(), manifest_name):
        if isinstance(orders, SerialOrders) and _same_serials(orders, read.batch):
            found.append(_shared_serials(orders, read.batch, folder))
            continue
        if not _products(read.batch) & _products(orders.described()):
            continue
        if labels_left <= 0:
            unread.append(folder)
            continue
        own = _devices(orders) if own is None else own
        theirs, whole = _devices_of(read, labels_left)
        labels_left -= len(theirs)
        unread += [] if whole else [folder]
        names = [identifier for product, identifier in own if (product, identifier) in theirs]
        found.append(_Shared(folder, len(names), _named(names)))
    notes = _sentence(orders, found)
    if unread:
        notes += (f"{len(unread)} batch(es) beside it, such as {unread[0]}, could not be compared to their end",)
    return notes


def _sentence(orders: Orders, found: list[_Shared]) -> tuple[str, ...]:
    most = max(found, key=lambda one: one.count, default=None)
    if most is None or not most.count:
        return ()
    free = max(one.free for one in found)
    if isinstance(orders, SerialOrders) and most.free:
        way_out = f"give --first-serial {free}, or let --ledger FILE hand out each serial once"
    elif isinstance(orders, SerialOrders):
        way_out = "give another --template or --first-serial, or remove those labels"
    else:
        way_out = "take those rows out of the table, or remove those labels"
    return (f"{most.folder} has labels of the same devices, {most.names}: {way_out}",)


def _same_serials(orders: SerialOrders, batch: dict[str, Any]) -> bool:
    """Whether another batch counts the serials of the same template, so that two ranges say it all."""
    is_same = (batch.get("product_id"), batch.get("template")) == (orders.product_id, orders.template.pattern)
    return (
        is_same and orders.template.varies and all(isinstance(batch.get(key), int) for key in ("first_serial", "count"))
    )


def _shared_serials(orders: SerialOrders, batch: dict[str, Any], folder: Path) -> _Shared:
    first, behind = batch["first_serial"], batch["first_serial"] + batch["count"]
    both = range(max(first, orders.first_serial), min(behind, orders.first_serial + orders.count))
    names = (
        " to ".join(orders.template.identifier(serial) for serial in dict.fromkeys((both[0], both[-1]))) if both else ""
    )
    return _Shared(folder, len(both), names, behind)


def _products(batch: dict[str, Any]) -> set[str]:
    """The products of a manifest's ``batch``: one, or a list of those of a table."""
    given = batch.get("product_id")
    return {product for product in (given if isinstance(given, list) else [given]) if isinstance(product, str)}


def _devices(orders: Orders) -> dict[tuple[str, str], None]:
    """Product and identifier of each label, in order."""
    if isinstance(orders, RowOrders):
        return dict.fromkeys((row.product_id, row.device_identifier) for row in orders.rows)
    return dict.fromkeys((one.product_id, one.identifier) for one in map(orders.label, range(orders.count)))


def _devices_of(read: ReadManifest, labels_max: int) -> tuple[set[tuple[str, str]], bool]:
    """Product and identifier of the labels of another batch, and whether all of them were read."""
    found: set[tuple[str, str]] = set()
    try:
        for label in read.labels():
            if len(found) >= labels_max:
                return found, False
            found.add((str(label["product_id"]), str(label["identifier"])))
    except _NO_MANIFEST:
        return found, False
    return found, True


def _named(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _batches_beside(out: Path, manifest_name: str) -> Iterator[tuple[Path, ReadManifest]]:
    try:
        folders = sorted(itertools.islice((one for one in out.parent.iterdir() if one != out), _FOLDERS_MAX))
    except OSError:
        return
    for folder in folders:
        try:
            yield folder, read_manifest(folder / manifest_name)
        except _NO_MANIFEST:  # no batch of labels
            continue
