"""Labels as a preview, a sheet or a zip. Everything is made in a folder that is gone afterwards."""

from __future__ import annotations

import csv
import io
import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simulator.console.labels.orders import PREVIEW_LABELS
from simulator.labels.errors import LabelError
from simulator.labels.grid import open_sheet
from simulator.labels.make import Batch, make_labels
from simulator.labels.manifest import MadeLabel
from simulator.labels.payload import Payload
from simulator.wire.qr.keys import signer_of_label_key

_OPTION: Final = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
_ROW: Final = re.compile(r"\s*line ([0-9]+):")
_FIRST_ROW: Final = 2
_ROWS_SHOWN: Final = 5
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The date of every file in a zip: equal orders give equal bytes."""


@dataclass(frozen=True, slots=True)
class LabelsResult:
    """What was made.

    Attributes:
        shown: the answer's JSON members; empty where ``data`` is the answer.
        data: a document or an archive.
        media_type: of ``data``.
        name: what a browser saves ``data`` under.
    """

    shown: Mapping[str, Any]
    data: bytes = b""
    media_type: str = ""
    name: str = ""


def make_order(order: Mapping[str, Any], label_key: str | None) -> LabelsResult:
    """Make what was ordered.

    Args:
        order: the members of a :class:`~simulator.console.labels.orders.LabelOrder`.
        label_key: the product's.

    Raises:
        LabelError: it cannot be made; the message names members of the order.
    """
    try:
        if order["output"] == "preview":
            return _preview(order, label_key)
        formats = ["pdf"] if order["output"] == "sheet" else list(order["formats"])
        with batch_of(order, label_key, formats) as batch:
            if order["output"] == "sheet":
                return LabelsResult({}, _sheet(batch), "application/pdf", "labels.pdf")
            return LabelsResult({}, zip_folder(batch.folder), "application/zip", "labels.zip")
    except LabelError as problem:
        text = str(problem)
        raise LabelError(_as_identifiers(text) if "\n" in text else as_members(text)) from None


def _as_identifiers(text: str) -> str:
    """A message about the rows of a table, one a line behind the first, as one about the identifiers of the body."""
    rows = [_ROW.sub(lambda found: f"identifiers[{int(found[1]) - _FIRST_ROW}]:", row) for row in text.splitlines()[1:]]
    return "; ".join(rows[:_ROWS_SHOWN])


def as_members(text: str) -> str:
    """A message about options of the program as one about members of the body."""
    return _OPTION.sub(lambda found: found[1].replace("-", "_"), text)


def payload_of(order: Mapping[str, Any], label_key: str | None) -> Payload:
    """How product and identifier are written.

    Raises:
        LabelError: signed labels are wanted, and the key to sign them with is not here.
    """
    signer = None if label_key is None else signer_of_label_key(label_key)
    wanted = order["signed"]
    if wanted and label_key is None:
        raise LabelError(
            "signed is true, and this product has no label_key to sign by: leave signed out, or give the product one "
            "(PUT /products/{productId})"
        )
    if signer is None and label_key is not None and wanted is not False:
        raise LabelError(
            "this product's label_key is a public key, so the service cannot sign: make its labels where the private "
            "key is, with 'fleet-simulator labels make' and its option sign-key-file; or give signed: false for labels "
            "that scan-qr refuses"
        )
    return Payload(order["profile"], order["link_host"].lower(), None if wanted is False else signer)


@contextmanager
def batch_of(
    order: Mapping[str, Any],
    label_key: str | None,
    formats: list[str],
    count: int | None = None,
) -> Iterator[Batch]:
    """The labels of an order in a folder of their own, for the length of the block.

    Args:
        order: the members of a :class:`~simulator.console.labels.orders.LabelOrder`.
        label_key: the product's.
        formats: what is written.
        count: at most so many of them.

    Raises:
        LabelError: they cannot be made.
    """
    identifiers = order["identifiers"]
    with tempfile.TemporaryDirectory(prefix="labels-") as place:
        devices = None
        if identifiers is not None:
            devices = Path(place) / "devices.csv"
            devices.write_text(_table(identifiers[:count]), encoding="utf-8", newline="")
        yield make_labels(
            product_id=order["product_id"],
            count=order["count"] if count is None else min(count, order["count"]),
            out=Path(place) / "labels",
            template=order["template"],
            first_serial=None if devices else order["first_serial"],
            devices=devices,
            size_mm=order["size_mm"],
            dpi=order["dpi"],
            formats=formats,
            sheet=order["paper"],
            payload=payload_of(order, label_key),
        )


def _table(identifiers: list[str]) -> str:
    rows = io.StringIO()
    writer = csv.writer(rows)
    writer.writerow(["device_identifier"])
    writer.writerows([identifier] for identifier in identifiers)
    return rows.getvalue()


def _preview(order: Mapping[str, Any], label_key: str | None) -> LabelsResult:
    total = order["count"] if order["identifiers"] is None else len(order["identifiers"])
    # The sheet is drawn as well, so that what will not fit there is said now.
    with batch_of(order, label_key, ["svg", "pdf"], PREVIEW_LABELS) as batch:
        labels = [_show(label) for label in batch.labels]
    per_page = open_sheet(order["paper"], order["size_mm"])[0].per_page
    return LabelsResult(
        {
            "count": total,
            "labels": labels,
            "signed_by": payload_of(order, label_key).described.get("signed_by"),
            "proven_by": ["zxing"],
            "warnings": list(batch.notes),
            "sheet": {"per_page": per_page, "pages": -(-total // per_page)},
        }
    )


def _show(label: MadeLabel) -> dict[str, Any]:
    return {
        "device_identifier": label.order.identifier,
        "text": label.order.text,
        "version": label.symbol.version,
        "level": label.symbol.level,
        "edge_mm": round(label.symbol.edge_mm, 2),
        "svg": label.files["svg"].read_text(encoding="utf-8"),
    }


def _sheet(batch: Batch) -> bytes:
    return b"" if batch.sheet is None else batch.sheet.read_bytes()


def zip_folder(folder: Path) -> bytes:
    """All files of a folder as an archive, by name."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as files:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                files.writestr(entry, path.read_bytes())
    return archive.getvalue()
