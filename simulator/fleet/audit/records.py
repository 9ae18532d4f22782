"""Reading records as arrays. Apart from :mod:`simulator.fleet.audit.frames`: a worker writes them without numpy."""

from __future__ import annotations

import zlib
from typing import Final

import numpy as np
import numpy.typing as npt

from simulator.fleet.audit.frames import READING_RECORD, Frame

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
"""The layout of :data:`~simulator.fleet.audit.frames.READING_RECORD`."""
Records = npt.NDArray[np.void]
"""An array of :data:`READING_TYPE`."""

if READING_TYPE.itemsize != READING_RECORD.size:
    raise AssertionError("the two descriptions of a reading record differ")


def records_of(frame: Frame) -> Records:
    """The records of a frame ``R``."""
    return np.frombuffer(zlib.decompress(frame.body), dtype=READING_TYPE)
