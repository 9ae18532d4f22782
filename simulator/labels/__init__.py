"""QR labels: made, drawn at true size, proven to read, damaged by known amounts, verified in pictures.

What stands here is imported when it is asked for: whoever needs one part does not wait for all the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from simulator.labels.batch.making import Batch, make_labels
    from simulator.labels.batch.manifest import MadeLabel
    from simulator.labels.damage.making import DamagedBatch, damage_labels
    from simulator.labels.errors import LabelError, LabelsExist, UnreadableLabel
    from simulator.labels.payload import Payload, open_payload
    from simulator.labels.reading import ReadLabel, read_label_files
    from simulator.labels.verify.report import Report
    from simulator.labels.verify.verifying import verify_labels

__all__ = [
    "Batch",
    "DamagedBatch",
    "LabelError",
    "LabelsExist",
    "MadeLabel",
    "Payload",
    "ReadLabel",
    "Report",
    "UnreadableLabel",
    "damage_labels",
    "make_labels",
    "open_payload",
    "read_label_files",
    "verify_labels",
]

_HOMES: Final = {
    **dict.fromkeys(["Batch", "make_labels"], "simulator.labels.batch.making"),
    **dict.fromkeys(["DamagedBatch", "damage_labels"], "simulator.labels.damage.making"),
    **dict.fromkeys(["LabelError", "LabelsExist", "UnreadableLabel"], "simulator.labels.errors"),
    **dict.fromkeys(["Payload", "open_payload"], "simulator.labels.payload"),
    **dict.fromkeys(["ReadLabel", "read_label_files"], "simulator.labels.reading"),
    "MadeLabel": "simulator.labels.batch.manifest",
    "Report": "simulator.labels.verify.report",
    "verify_labels": "simulator.labels.verify.verifying",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'simulator.labels' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
