"""Which labels should be there: a manifest, as 'labels make' writes it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.labels.errors import LabelError


@dataclass(frozen=True, slots=True)
class ExpectedLabel:
    """A label of the manifest.

    Attributes:
        identifier: its device identifier.
        text: what its code says.
    """

    identifier: str
    text: str


def load_expected(path: Path) -> tuple[ExpectedLabel, ...]:
    """The labels of a manifest.

    Args:
        path: ``manifest.json``, ``manifest.csv``, or a folder that holds the first.

    Raises:
        LabelError: it cannot be read, is no manifest, or names a text twice.
    """
    path = path / "manifest.json" if path.is_dir() else path
    try:
        content = path.read_text(encoding="utf-8-sig")
        rows = (
            csv.DictReader(io.StringIO(content, newline=""))
            if path.suffix.lower() == ".csv"
            else json.loads(content)["labels"]
        )
        labels = tuple(_labels(rows))
    except OSError as problem:
        raise LabelError(
            f"cannot read {path}: {problem.strerror or problem}; give the manifest of 'labels make'"
        ) from None
    except (ValueError, KeyError, TypeError, csv.Error):
        labels = ()
    if not labels:
        raise LabelError(f"{path} is no manifest of labels: give manifest.json or manifest.csv of 'labels make'")
    texts = [label.text for label in labels]
    if len(set(texts)) != len(texts):
        twice = next(label for label in labels if texts.count(label.text) > 1)
        raise LabelError(f"{path} names {twice.identifier} twice: a label can be missing or double only once")
    return labels


def _labels(rows: Iterable[Mapping[str, Any]]) -> Iterable[ExpectedLabel]:
    for row in rows:
        identifier, text = row["identifier"], row["text"]
        if not (isinstance(identifier, str) and isinstance(text, str) and text):
            raise TypeError
        yield ExpectedLabel(identifier, text)
