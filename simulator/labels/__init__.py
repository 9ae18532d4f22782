"""QR labels: made, drawn at true size, proven to read, damaged by known amounts, verified in pictures."""

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
