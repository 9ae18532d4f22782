"""Labels to onboard: out of a batch's manifest without looking at a picture, or read from pictures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.wire.limits import IDENTIFIER_CHARACTERS
from simulator.labels.errors import LabelError
from simulator.labels.reading import ReadLabel
from simulator.labels.verify.page_labels import read_page_labels
from simulator.onboarding.steps import Subject

_MANIFEST: Final = "manifest.json"
_FORMAT: Final = "device-agent/labels/"


@dataclass(frozen=True, slots=True)
class FoundLabels:
    """The labels of the given paths.

    Attributes:
        subjects: each device once, in the order found.
        copies: labels that say what an earlier one says.
        unread: pictures without a label.
    """

    subjects: tuple[Subject, ...]
    copies: int
    unread: tuple[ReadLabel, ...]

    @property
    def digest(self) -> str:
        """Names this set of labels, in this order."""
        return hashlib.sha256("\n".join(subject.text for subject in self.subjects).encode()).hexdigest()


def find_labels(paths: Sequence[Path], *, pictures: bool) -> FoundLabels:
    """The labels of folders, manifests, pictures and PDF documents.

    Args:
        paths: folders, ``manifest.json`` files, pictures or PDF documents with any number of labels.
        pictures: decode the pictures of a folder even when it has a manifest.

    Raises:
        LabelError: a path does not exist, holds nothing, or its manifest cannot be read.
    """
    subjects: list[Subject] = []
    unread: list[ReadLabel] = []
    for path in paths:
        manifest = path / _MANIFEST if path.is_dir() else path
        if manifest.name == _MANIFEST and manifest.is_file() and not (pictures and path.is_dir()):
            subjects += _read_manifest(manifest)
            continue
        for read in read_page_labels([path]):
            if read.label is None:
                unread.append(read)
            else:
                subjects.append(Subject(read.text, read.label.product_id, read.label.device_identifier, read.where))
    unique = {(one.product_id, one.device_identifier): one for one in reversed(subjects)}
    kept = sorted(unique.values(), key=_order(subjects).__getitem__)
    return FoundLabels(tuple(kept), len(subjects) - len(kept), tuple(unread))


def _order(subjects: Iterable[Subject]) -> dict[Subject, int]:
    order: dict[Subject, int] = {}
    for index, subject in enumerate(subjects):
        order.setdefault(subject, index)
    return order


def _read_manifest(path: Path) -> list[Subject]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise LabelError(f"cannot read {path}: {problem.strerror}") from None
    except ValueError:
        raise LabelError(f"{path} is no JSON: give the manifest that 'fleet-simulator labels make' wrote") from None
    if not isinstance(document, dict) or not str(document.get("format", "")).startswith(_FORMAT):
        raise LabelError(f"{path} is no manifest of labels: its 'format' must begin with {_FORMAT}")
    labels = document.get("labels")
    if not isinstance(labels, list) or not labels:
        raise LabelError(f"{path} names no label: make some with 'fleet-simulator labels make'")
    return [_subject(label, f"{path}, label {number}") for number, label in enumerate(labels, 1)]


def _subject(label: Any, where: str) -> Subject:
    members = [label.get(name) if isinstance(label, dict) else None for name in ("text", "product_id", "identifier")]
    if not all(isinstance(member, str) and member for member in members):
        raise LabelError(f"{where}: it lacks text, product_id or identifier")
    text, product_id, identifier = members
    if (longest := max(len(str(one)) for one in members[1:])) > IDENTIFIER_CHARACTERS:
        raise LabelError(f"{where}: an id in it has {longest} characters; the limit is {IDENTIFIER_CHARACTERS}")
    return Subject(str(text), str(product_id), str(identifier), where)
