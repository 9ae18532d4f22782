"""Batches beside the one that is made: two labels with one serial name one device."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from simulator.labels.batch.manifest import read_manifest
from simulator.labels.batch.orders import SerialOrders

_FOLDERS_MAX: Final = 1000


def shared_serials(orders: SerialOrders, out: Path, manifest_name: str) -> tuple[str, ...]:
    """What has to be said about batches in the folders beside ``out`` whose labels have identifiers of this one.

    Args:
        orders: the labels that are to be made.
        out: their folder; what is in it already is not looked at.
        manifest_name: of the file in a folder that says which labels are there.

    Returns:
        A sentence that names the batch with the most labels in common; nothing where there is none.
    """
    own = range(orders.first_serial, orders.first_serial + orders.count)
    found = []
    for folder, batch in _batches_beside(out.resolve(), manifest_name):
        if (batch.get("product_id"), batch.get("template")) != (orders.product_id, orders.template.pattern):
            continue
        first, count = batch.get("first_serial"), batch.get("count")
        if isinstance(first, int) and isinstance(count, int):
            found.append((range(max(first, own.start), min(first + count, own.stop)), first + count, folder))
    both, _, folder = max(found, key=lambda one: len(one[0]), default=(range(0), 0, out))
    if not both:
        return ()
    free = max(behind for _, behind, _ in found)
    names = " to ".join(orders.template.identifier(serial) for serial in dict.fromkeys((both[0], both[-1])))
    way_out = f"give --first-serial {free}, or let --ledger FILE hand out each serial once"
    return (f"{folder} has labels of the same devices, {names}: {way_out}",)


def _batches_beside(out: Path, manifest_name: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    try:
        folders = sorted(itertools.islice((one for one in out.parent.iterdir() if one != out), _FOLDERS_MAX))
    except OSError:
        return
    for folder in folders:
        try:
            yield folder, read_manifest(folder / manifest_name).batch
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no batch of labels
            continue
