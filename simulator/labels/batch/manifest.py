"""The manifest of a batch: what each label says, where it is, and who read it back. Equal batches, equal bytes.

In JSON each label stands on a line of its own, so that a manifest of 100,000 labels is written and read without ever
being in memory as a whole.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from simulator.labels.printing.estimate import PrintEstimate
from simulator.labels.symbol.matrix import Matrix
from simulator.labels.symbol.proving import DecodeVerdict, Trial

FORMAT: Final = "device-agent/labels/1"
_LABELS: Final = b' "labels": ['


@dataclass(frozen=True, slots=True)
class MadeLabel:
    """One label of a batch.

    Attributes:
        serial: the number that its identifier was made from.
        identifier: the ``device_identifier``.
        product_id: the product it belongs to.
        name: a line for people, printed beside the code; may be empty.
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
    name: str
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
    def verdicts(self) -> dict[str, DecodeVerdict]:
        """What each decoder said about the code as it was written."""
        return dict(self.taken.verdicts)


@dataclass(frozen=True, slots=True)
class ReadManifest:
    """A manifest that was read from a file.

    Attributes:
        batch: what the batch was made from.
        decoders: the panel.
        files: format -> names of the files that hold all labels together.
        labels: a function that gives each label's members, in order, anew each time.
    """

    batch: dict[str, Any]
    decoders: tuple[str, ...]
    files: Mapping[str, Sequence[str]]
    labels: Callable[[], Iterator[dict[str, Any]]]


def as_json(
    batch: Mapping[str, Any],
    *,
    decoders: Sequence[str],
    warnings: Sequence[str],
    files: Mapping[str, Sequence[str]],
    estimates: Mapping[int, PrintEstimate],
    labels: Iterable[MadeLabel],
) -> Iterator[bytes]:
    """The manifest as JSON, in pieces. Labels with equal dots per module share an entry of ``estimates``.

    Args:
        batch: what the batch was made from.
        decoders: the panel.
        warnings: what a user has to know about it.
        files: format -> names of the files that hold all labels together.
        estimates: dots per module -> how such a code may print.
        labels: in the batch's order.
    """
    head = {
        "format": FORMAT,
        "batch": dict(batch),
        "decoders": list(decoders),
        "warnings": list(warnings),
        "files": {name: list(found) for name, found in files.items()},
        "estimates": {str(dots): found.document() for dots, found in sorted(estimates.items())},
    }
    yield json.dumps(head, indent=1, ensure_ascii=False).encode().removesuffix(b"\n}") + b",\n" + _LABELS
    mark = b"\n"
    for label in labels:
        yield mark + json.dumps(label_document(label), ensure_ascii=False).encode()
        mark = b",\n"
    yield b"\n ]\n}\n"


def read_manifest(path: Path) -> ReadManifest:
    """Read a manifest; one that we wrote is read line by line.

    Raises:
        OSError: it cannot be read.
        ValueError, KeyError, TypeError: it is no manifest.
    """
    head = bytearray()
    with path.open("rb") as file:
        for line in file:
            if line.rstrip(b"\n") == _LABELS:
                start = file.seek(len(head) + len(line))
                known = json.loads(bytes(head) + _LABELS + b"]}")
                return _manifest(known, partial(_label_lines, path, start))
            head += line
    whole = json.loads(bytes(head))
    labels = [dict(label) for label in whole["labels"]]
    return _manifest(whole, lambda: iter(labels))


def _manifest(known: dict[str, Any], labels: Callable[[], Iterator[dict[str, Any]]]) -> ReadManifest:
    return ReadManifest(dict(known["batch"]), tuple(known.get("decoders", ())), dict(known.get("files", {})), labels)


def _label_lines(path: Path, start: int) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        file.seek(start)
        for line in file:
            if line.strip() == b"]":
                return
            yield dict(json.loads(line.rstrip(b",\n")))
    raise ValueError("the manifest is cut short")


def label_document(label: MadeLabel) -> dict[str, Any]:
    """One label as JSON members: file names instead of paths, numbers rounded to a tenth of a micrometre."""
    level, mask = label.matrix.level_and_mask
    return {
        "serial": label.serial,
        "identifier": label.identifier,
        "product_id": label.product_id,
        "name": label.name,
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


def as_csv(decoders: Sequence[str], labels: Iterable[MadeLabel]) -> Iterator[bytes]:
    """The manifest as a table, one row per label, one column per decoder; RFC 4180, UTF-8; in pieces."""
    plain: list[str] = []
    for label in labels:
        document = label_document(label)
        if not plain:
            plain = [key for key in document if key not in {"verdicts", "missed"}]
            yield _csv_line([*plain, *decoders, "candidates_missed"])
        verdicts = document["verdicts"]
        yield _csv_line([*(document[key] for key in plain), *(verdicts[name] for name in decoders), len(label.missed)])


def _csv_line(cells: Sequence[object]) -> bytes:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\r\n").writerow(cells)
    return buffer.getvalue().encode()
