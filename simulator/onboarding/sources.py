"""Labels to onboard: out of a batch's manifest without looking at a picture, or read from pictures."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.wire.limits import IDENTIFIER_CHARACTERS
from simulator.labels.errors import LabelError
from simulator.labels.manifest import read_manifest
from simulator.labels.reading import ReadLabel, read_labels
from simulator.onboarding.steps import Subject

_MANIFEST: Final = "manifest.json"


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
        for read in read_labels([path]):
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
    listed = read_manifest(path)
    for label in listed:
        if (longest := max(len(label.identifier), len(label.product_id))) > IDENTIFIER_CHARACTERS:
            raise LabelError(f"{path}: an id in it has {longest} characters; the limit is {IDENTIFIER_CHARACTERS}")
    return [Subject(label.text, label.product_id, label.identifier, str(path)) for label in listed]
