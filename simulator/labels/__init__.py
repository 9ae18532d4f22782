"""QR labels: made, drawn at true size, and proven to read before they are written."""

from simulator.labels.batch.making import Batch, make_labels
from simulator.labels.batch.manifest import MadeLabel
from simulator.labels.errors import LabelError, LabelsExist, UnreadableLabel
from simulator.labels.payload import Payload, open_payload
from simulator.labels.reading import ReadLabel, read_label_files

__all__ = [
    "Batch",
    "LabelError",
    "LabelsExist",
    "MadeLabel",
    "Payload",
    "ReadLabel",
    "UnreadableLabel",
    "make_labels",
    "open_payload",
    "read_label_files",
]
