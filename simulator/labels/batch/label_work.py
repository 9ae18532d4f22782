"""Makes one label in a worker: proves it, writes its files and its journal line; and reads the line back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.labels.batch.folder import FileWriter, file_stem
from simulator.labels.batch.formats import FORMATS, BatchFormat, BatchSetup, LabelFormat, LabelOrder
from simulator.labels.batch.journal import label_line
from simulator.labels.batch.manifest import MadeLabel
from simulator.labels.errors import LabelError
from simulator.labels.printing.estimate import PrintAssumptions, estimate
from simulator.labels.symbol.decoders import Decoder, panel
from simulator.labels.symbol.encoding import Candidate, candidates, encode
from simulator.labels.symbol.matrix import Matrix
from simulator.labels.symbol.proving import DecodeVerdict, PrintSize, ProvenSymbol, Trial, prove


@dataclass(frozen=True, slots=True)
class ProvingWork:
    """Prove a label and write its files; see :class:`simulator.labels.processes.Work`.

    Attributes:
        setup: what all labels share.
        level: the lowest error correction level.
        formats: the words of the formats asked for.
        files: writes into the folder.
        decoders: the panel, by name where another process has to load it.
    """

    setup: BatchSetup
    level: str
    formats: tuple[str, ...]
    files: FileWriter
    decoders: tuple[str, ...] | tuple[Decoder, ...]

    def start(self) -> Callable[[LabelOrder], bytes]:
        """The function that makes one label and returns its line of the journal."""
        names = [decoder for decoder in self.decoders if isinstance(decoder, str)]
        readers = panel(names) if names else tuple(each for each in self.decoders if not isinstance(each, str))
        drawn = {name: form for name, form in FORMATS.items() if name in self.formats and isinstance(form, LabelFormat)}

        def make(order: LabelOrder) -> bytes:
            symbol = prove(order.text, size=self.setup.size, level=self.level, panel=readers)
            stem = file_stem(order.identifier)
            files = {}
            for name, form in drawn.items():
                data = form.draw(self.setup, order, symbol)
                written = self.files.write(stem + form.ending, data)
                files[name] = [written.name, hashlib.sha256(data).hexdigest()]
            return label_line(_record(order, symbol, files))

        return make


def _record(order: LabelOrder, symbol: ProvenSymbol, files: Mapping[str, list[str]]) -> dict[str, Any]:
    return {
        "serial": order.serial,
        "identifier": order.identifier,
        "product_id": order.product_id,
        "name": order.name,
        "text": order.text,
        "modules": symbol.matrix.modules,
        "packed": symbol.matrix.packed().hex(),
        "dots": symbol.dots_per_module,
        "taken": _trial_members(symbol.taken),
        "missed": [_trial_members(trial) for trial in symbol.missed],
        "files": dict(files),
    }


def _trial_members(trial: Trial) -> list[Any]:
    candidate = trial.candidate
    verdicts = {name: verdict.value for name, verdict in trial.verdicts}
    return [trial.number, candidate.larger_by, candidate.level, candidate.mask, verdicts]


def _trial(members: Sequence[Any]) -> Trial:
    number, larger_by, level, mask, verdicts = members
    return Trial(
        number, Candidate(larger_by, level, mask), tuple((name, DecodeVerdict(word)) for name, word in verdicts.items())
    )


def made_label(
    record: Mapping[str, Any], index: int, setup: BatchSetup, formats: Sequence[str], path: Path
) -> MadeLabel:
    """The label that a journal's record describes.

    Args:
        record: as :class:`ProvingWork` wrote it.
        index: its place in the batch, from 0.
        setup: what all labels share.
        formats: the words of the formats asked for.
        path: the folder.
    """
    return MadeLabel(
        serial=record["serial"],
        identifier=record["identifier"],
        product_id=record["product_id"],
        name=record["name"],
        text=record["text"],
        matrix=Matrix.unpacked(bytes.fromhex(record["packed"]), record["modules"]),
        module_mm=setup.size.to_mm(record["dots"]),
        dots_per_module=record["dots"],
        taken=_trial(record["taken"]),
        missed=tuple(_trial(trial) for trial in record["missed"]),
        estimate=estimate(dots_per_module=record["dots"], dpi=setup.size.dpi, assumed=setup.printing.assumed),
        files={name: path / found for name, (found, _) in record["files"].items()},
        place=_place(setup, formats, index),
    )


def _place(setup: BatchSetup, formats: Sequence[str], index: int) -> dict[str, Any]:
    place: dict[str, Any] = {}
    for name in formats:
        form = FORMATS[name]
        if isinstance(form, BatchFormat):
            place.update(form.place(setup, index))
    return place


def label_of_manifest(
    entry: Mapping[str, Any], *, batch: Mapping[str, Any], assumed: PrintAssumptions, kinds: Sequence[str], path: Path
) -> MadeLabel:
    """The label that a manifest's entry describes; its modules are encoded again and compared.

    Args:
        entry: the label's members.
        batch: the manifest's ``batch``.
        assumed: what the estimate assumes.
        kinds: formats with a file for each label.
        path: the folder.

    Raises:
        LabelError: this version of the encoder makes another code of it.
    """
    order = candidates(batch["level"])

    def trial(number: int, verdicts: Mapping[str, str]) -> Trial:
        return Trial(number, order[number - 1], tuple((name, DecodeVerdict(word)) for name, word in verdicts.items()))

    taken = trial(entry["candidate"], entry["verdicts"])
    matrix = encode(entry["text"], taken.candidate)
    if matrix is None or matrix.sha256() != entry["modules_sha256"]:
        raise LabelError(f"{path}: {entry['identifier']!r} was made by another version of the encoder; make it again")
    known = {"serial", "identifier", "product_id", "name", "text", "version", "level", "mask", "modules"}
    known |= {"dots_per_module", "module_mm", "edge_mm", "modules_sha256", "candidate", "verdicts", "missed", *kinds}
    known.add("estimated_grade")
    return MadeLabel(
        serial=entry["serial"],
        identifier=entry["identifier"],
        product_id=entry["product_id"],
        name=entry["name"],
        text=entry["text"],
        matrix=matrix,
        module_mm=PrintSize(batch["size_mm"], batch["dpi"]).to_mm(entry["dots_per_module"]),
        dots_per_module=entry["dots_per_module"],
        taken=taken,
        missed=tuple(trial(missed["candidate"], missed["verdicts"]) for missed in entry["missed"]),
        estimate=estimate(dots_per_module=entry["dots_per_module"], dpi=batch["dpi"], assumed=assumed),
        files={kind: path / entry[kind] for kind in kinds if kind in entry},
        place={key: value for key, value in entry.items() if key not in known},
    )
