"""The manifest of a batch: what each label says, where it is, and who read it back. Equal batches, equal bytes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simulator.labels.batch.orders import LabelOrder
from simulator.labels.symbol.matrix import Matrix
from simulator.labels.symbol.proving import DecodeVerdict

FORMAT: Final = "device-agent/labels/1"


@dataclass(frozen=True, slots=True)
class MadeLabel:
    """One label of a batch.

    Attributes:
        order: what it was made from.
        matrix: the code's modules.
        module_mm: edge of a module in millimetres.
        dots_per_module: the same in printer dots.
        verdicts: what each decoder said about the code as it was written.
        missed: candidates before it that a decoder did not read.
        files: its own files by format.
    """

    order: LabelOrder
    matrix: Matrix
    module_mm: float
    dots_per_module: int
    verdicts: Mapping[str, DecodeVerdict]
    missed: int
    files: Mapping[str, Path]

    @property
    def identifier(self) -> str:
        """The ``device_identifier``."""
        return self.order.identifier

    @property
    def product_id(self) -> str:
        """The product it belongs to."""
        return self.order.product_id

    @property
    def text(self) -> str:
        """What the code says."""
        return self.order.text

    @property
    def edge_mm(self) -> float:
        """Edge of the code with its quiet zone."""
        return self.matrix.modules_with_quiet_zone * self.module_mm

    @property
    def png(self) -> Path | None:
        """The picture, when asked for."""
        return self.files.get("png")

    @property
    def svg(self) -> Path | None:
        """The drawing, when asked for."""
        return self.files.get("svg")


def as_json(
    batch: Mapping[str, Any], *, warnings: Sequence[str], files: Mapping[str, Path], labels: Sequence[MadeLabel]
) -> bytes:
    """The manifest as JSON.

    Args:
        batch: what the batch was made from, the panel included.
        warnings: what a user has to know about it.
        files: format -> the file that holds all labels together.
        labels: in the batch's order.
    """
    document = {
        "format": FORMAT,
        "batch": dict(batch),
        "warnings": list(warnings),
        "files": {name: path.name for name, path in files.items()},
        "labels": [_members(label) for label in labels],
    }
    return json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"


def _members(label: MadeLabel) -> dict[str, Any]:
    """One label as JSON members: file names instead of paths, numbers rounded to a tenth of a micrometre."""
    level, mask = label.matrix.level_and_mask
    return {
        "serial": label.order.serial,
        "identifier": label.order.identifier,
        "product_id": label.order.product_id,
        "name": label.order.name,
        "text": label.order.text,
        **{name: path.name for name, path in label.files.items()},
        "version": label.matrix.version,
        "level": level,
        "mask": mask,
        "modules": label.matrix.modules,
        "dots_per_module": label.dots_per_module,
        "module_mm": round(label.module_mm, 4),
        "edge_mm": round(label.edge_mm, 4),
        "modules_sha256": label.matrix.sha256(),
        "verdicts": {name: verdict.value for name, verdict in label.verdicts.items()},
        "candidates_missed": label.missed,
    }


def as_csv(labels: Sequence[MadeLabel]) -> bytes:
    """The manifest as a table, one row per label, one column per decoder; RFC 4180, UTF-8."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    for number, label in enumerate(labels):
        members = _members(label)
        members.update(members.pop("verdicts"))
        if number == 0:
            writer.writerow(members)
        writer.writerow(members.values())
    return buffer.getvalue().encode()
