"""The manifest of a batch: what each label says, where it is, and who read it back. Equal batches, equal bytes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simulator.labels.printing.estimate import PrintEstimate
from simulator.labels.symbol.matrix import Matrix
from simulator.labels.symbol.proving import Trial, Verdict

FORMAT: Final = "device-agent/labels/1"


@dataclass(frozen=True, slots=True)
class MadeLabel:
    """One label of a batch.

    Attributes:
        serial: the number that its identifier was made from.
        identifier: the ``device_identifier``.
        product_id: the product it belongs to.
        text: what the code says.
        matrix: the code's modules.
        module_mm: edge of a module in millimetres.
        dots_per_module: the same in printer dots.
        taken: the candidate that the whole panel read.
        missed: candidates before it that a decoder did not read.
        estimate: how it may print.
        files: its own files by format.
        place: where it stands in files of the whole batch, such as ``{"page": 3}``.
    """

    serial: int
    identifier: str
    product_id: str
    text: str
    matrix: Matrix
    module_mm: float
    dots_per_module: int
    taken: Trial
    missed: tuple[Trial, ...]
    estimate: PrintEstimate
    files: Mapping[str, Path]
    place: Mapping[str, Any]

    @property
    def png(self) -> Path | None:
        """The picture, when asked for."""
        return self.files.get("png")

    @property
    def svg(self) -> Path | None:
        """The drawing, when asked for."""
        return self.files.get("svg")

    @property
    def page(self) -> int | None:
        """Its page in the sheet from 1, when there is a sheet."""
        return self.place.get("page")

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """What each decoder said about the code as it was written."""
        return dict(self.taken.verdicts)


def as_json(
    batch: Mapping[str, Any],
    decoders: Sequence[str],
    labels: Sequence[MadeLabel],
    files: Mapping[str, Sequence[str]],
) -> bytes:
    """The manifest as JSON. Labels with equal dots per module share an entry of ``estimates``.

    Args:
        batch: what the batch was made from.
        decoders: the panel.
        labels: in the order of their serials.
        files: format -> names of the files that hold all labels together.
    """
    document = {
        "format": FORMAT,
        "batch": dict(batch),
        "decoders": list(decoders),
        "files": {name: list(found) for name, found in files.items()},
        "estimates": {
            str(dots): found.document()
            for dots, found in sorted({label.dots_per_module: label.estimate for label in labels}.items())
        },
        "labels": [label_document(label) for label in labels],
    }
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def label_document(label: MadeLabel) -> dict[str, Any]:
    """One label as JSON members: file names instead of paths, numbers rounded to a tenth of a micrometre."""
    level, mask = label.matrix.level_and_mask
    return {
        "serial": label.serial,
        "identifier": label.identifier,
        "product_id": label.product_id,
        "text": label.text,
        **{name: path.name for name, path in label.files.items()},
        **label.place,
        "version": label.matrix.version,
        "level": level,
        "mask": mask,
        "modules": label.matrix.modules,
        "dots_per_module": label.dots_per_module,
        "module_mm": round(label.module_mm, 4),
        "edge_mm": round(label.matrix.modules_with_quiet_zone * label.module_mm, 4),
        "modules_sha256": label.matrix.sha256(),
        "estimated_grade": label.estimate.letter,
        "candidate": label.taken.number,
        "verdicts": {name: verdict.value for name, verdict in label.taken.verdicts},
        "missed": [
            {"candidate": trial.number, "verdicts": {name: verdict.value for name, verdict in trial.verdicts}}
            for trial in label.missed
        ],
    }


def as_csv(decoders: Sequence[str], labels: Sequence[MadeLabel]) -> bytes:
    """The manifest as a table, one row per label, one column per decoder; RFC 4180, UTF-8."""
    plain = [key for key in label_document(labels[0]) if key not in {"verdicts", "missed"}] if labels else []
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow([*plain, *decoders, "candidates_missed"])
    for label in labels:
        document = label_document(label)
        writer.writerow(
            [
                *(document[key] for key in plain),
                *(document["verdicts"][name] for name in decoders),
                len(label.missed),
            ]
        )
    return buffer.getvalue().encode()
