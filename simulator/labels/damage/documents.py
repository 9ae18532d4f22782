"""The manifests of damaged labels: what was done to each picture, and what was measured on it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from simulator.labels.damage.kinds import KINDS
from simulator.labels.damage.measuring import DamageFinding, Sample

FORMAT: Final = "device-agent/damaged-labels/1"
_DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class Run:
    """What all pictures of a run share.

    Attributes:
        seed: of all chance.
        severities: that were asked for, rising.
        kinds: names of the kinds.
        decoders: the panel's names.
    """

    seed: int
    severities: tuple[float, ...]
    kinds: tuple[str, ...]
    decoders: tuple[str, ...]


def sample_file(finding: DamageFinding, number: int) -> str:
    """The path of a picture in the folder; ``number`` counts the severities from 1."""
    return f"{finding.kind}/{finding.label}-{number}.png"


def as_json(run: Run, findings: Sequence[DamageFinding]) -> bytes:
    """The manifest of a run."""
    document = {
        **_head(run),
        "pictures": [row for finding in findings for row in _samples(run, finding)],
        "flips": [row for finding in findings for row in _flips(run, finding)],
    }
    return _dump(document)


def pictures_csv(run: Run, findings: Sequence[DamageFinding]) -> bytes:
    """A row for each picture, a column for each decoder."""
    return _table(_flat(row) for finding in findings for row in _samples(run, finding))


def flips_csv(run: Run, findings: Sequence[DamageFinding]) -> bytes:
    """A row for each label, kind and decoder."""
    return _table(row for finding in findings for row in _flips(run, finding))


def _head(run: Run) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "seed": run.seed,
        "severities": list(run.severities),
        "decoders": list(run.decoders),
        "made_with": {name: version(name) for name in ("numpy", "pillow", "zxing-cpp")},
        "kinds": [{"name": name, "what": KINDS[name].what, "unit": KINDS[name].unit} for name in run.kinds],
    }


def _samples(run: Run, finding: DamageFinding) -> list[dict[str, Any]]:
    return [
        _row(run, finding, sample, sample_file(finding, number))
        for number, sample in enumerate(finding.samples, start=1)
    ]


def _row(run: Run, finding: DamageFinding, sample: Sample, file: str) -> dict[str, Any]:
    return {
        "label": finding.label,
        "text": finding.text,
        "kind": finding.kind,
        "severity": round(sample.severity, _DIGITS),
        "measure": round(sample.measure, _DIGITS),
        "unit": KINDS[finding.kind].unit,
        "file": file,
        "width": sample.width,
        "height": sample.height,
        "pixels_sha256": sample.pixels_sha256,
        "verdicts": {name: verdict.value for name, verdict in zip(run.decoders, sample.verdicts, strict=True)},
    }


def _flips(run: Run, finding: DamageFinding) -> list[dict[str, Any]]:
    kind = KINDS[finding.kind]

    def rounded(value: float | None) -> float | None:
        return None if value is None else round(value, _DIGITS)

    return [
        {
            "label": finding.label,
            "kind": finding.kind,
            "decoder": name,
            "outcome": flip.outcome.value,
            "last_legible": rounded(flip.last_legible),
            "first_lost": rounded(flip.first_lost),
            "last_legible_measure": rounded(None if flip.last_legible is None else kind.measure(flip.last_legible)),
            "first_lost_measure": rounded(None if flip.first_lost is None else kind.measure(flip.first_lost)),
            "unit": kind.unit,
            "monotonic": flip.monotonic,
        }
        for name, flip in zip(run.decoders, finding.flips, strict=False)
    ]


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in row.items() if key != "verdicts"}, **row["verdicts"]}


def _dump(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def _table(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """RFC 4180 in UTF-8; an empty table when there are no rows."""
    buffer = io.StringIO(newline="")
    writer: csv.DictWriter[str] | None = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(buffer, list(row), lineterminator="\r\n")
            writer.writeheader()
        writer.writerow({key: "" if value is None else value for key, value in row.items()})
    return buffer.getvalue().encode()
