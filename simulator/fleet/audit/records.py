"""Records of readings as arrays.

Apart from :mod:`simulator.fleet.audit.ledger_format`, since a worker writes them without numpy.
"""

from __future__ import annotations

import zlib
from typing import Final

import numpy as np
import numpy.typing as npt

from simulator.fleet.audit.ledger_format import READING_RECORD, STORED_RECORD, Frame

READING_TYPE: Final = np.dtype(
    [
        ("kind", "u1"),
        ("_", "u1"),
        ("count", "<u2"),
        ("device", "<u4"),
        ("sequence", "<u4"),
        ("digest", "<u4"),
        ("time", "<u4"),
        ("made", "<u4"),
        ("recorded", "<i8"),
    ]
)
"""The layout of :data:`~simulator.fleet.audit.ledger_format.READING_RECORD`."""
STORED_TYPE: Final = np.dtype(
    [
        ("device", "<u4"),
        ("sequence", "<u4"),
        ("digest", "<u4"),
        ("place", "<u4"),
        ("recorded", "<i8"),
        ("received", "<i8"),
    ]
)
"""The layout of :data:`~simulator.fleet.audit.ledger_format.STORED_RECORD`."""
Records = npt.NDArray[np.void]
"""An array of :data:`READING_TYPE` or :data:`STORED_TYPE`."""

if (READING_TYPE.itemsize, STORED_TYPE.itemsize) != (READING_RECORD.size, STORED_RECORD.size):
    raise AssertionError("the two descriptions of a record differ")

_TYPES: Final = {b"R": READING_TYPE, b"S": STORED_TYPE}


def records_of(frame: Frame) -> Records:
    """The records of a frame ``R`` or ``S``."""
    return np.frombuffer(zlib.decompress(frame.body), dtype=_TYPES[frame.kind])


def counted_readings(records: Records) -> npt.NDArray[np.int64]:
    """The number of readings in each record of an ``R`` frame; 1 for each of an ``S`` frame."""
    if records.dtype == STORED_TYPE:
        return np.ones(len(records), dtype=np.int64)
    return records["count"].astype(np.int64)
