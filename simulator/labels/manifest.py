"""The manifest of a batch: what each label says and where it is, as JSON and as a table. Equal batches, equal bytes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simulator.labels.errors import LabelError
from simulator.labels.payload import LabelOrder
from simulator.labels.symbol import Symbol

MANIFEST_JSON: Final = "manifest.json"
MANIFEST_CSV: Final = "manifest.csv"


@dataclass(frozen=True, slots=True)
class MadeLabel:
    """One label of a batch: what it was made from, its code, and its own files by format."""

    order: LabelOrder
    symbol: Symbol
    files: Mapping[str, Path]

    @property
    def png(self) -> Path | None:
        """The picture, when asked for."""
        return self.files.get("png")


def as_rows(labels: Sequence[MadeLabel]) -> list[dict[str, Any]]:
    """The labels as members of JSON: file names instead of paths."""
    return [
        {
            "serial": label.order.serial,
            "identifier": label.order.identifier,
            "product_id": label.order.product_id,
            "name": label.order.name,
            "text": label.order.text,
            **{name: path.name for name, path in label.files.items()},
            "version": label.symbol.version,
            "level": label.symbol.level,
            "mask": label.symbol.mask,
            "dots_per_module": label.symbol.dots_per_module,
            "edge_mm": round(label.symbol.edge_mm, 4),
        }
        for label in labels
    ]


def as_csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows as a table; RFC 4180, UTF-8."""
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().encode()


@dataclass(frozen=True, slots=True)
class ListedLabel:
    """A label of a manifest: its device's identifier and product, what its code says, and its picture's name if any."""

    identifier: str
    product_id: str
    text: str
    png: str = ""


def read_manifest(path: Path) -> list[ListedLabel]:
    """The labels of a manifest.

    Args:
        path: ``manifest.json``, ``manifest.csv``, or a folder that holds the first.

    Raises:
        LabelError: it cannot be read, is no manifest, or names a text twice.
    """
    path = path / MANIFEST_JSON if path.is_dir() else path
    try:
        content = path.read_text(encoding="utf-8-sig")
        is_table = path.suffix.lower() == ".csv"
        rows = csv.DictReader(io.StringIO(content, newline="")) if is_table else json.loads(content)["labels"]
        labels = [
            ListedLabel(str(row["identifier"]), str(row["product_id"]), str(row["text"]), str(row.get("png") or ""))
            for row in rows
        ]
    except OSError as problem:
        raise LabelError(
            f"cannot read {path}: {problem.strerror or problem}; give the manifest of 'labels make'"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error):
        labels = []
    if not labels or not all(label.text for label in labels):
        raise LabelError(f"{path} is no manifest of labels: give manifest.json or manifest.csv of 'labels make'")
    seen: set[str] = set()
    for label in labels:
        if label.text in seen:
            raise LabelError(f"{path} names {label.identifier} twice: a label can be missing or double only once")
        seen.add(label.text)
    return labels
