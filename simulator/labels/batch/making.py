"""Make a batch of labels: encode, draw, prove, write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.labels.batch import manifest
from simulator.labels.batch.folder import MANIFEST_CSV, LabelFolder, file_stem
from simulator.labels.batch.formats import (
    DEFAULT_FORMATS,
    FORMATS,
    BatchFormat,
    BatchSetup,
    LabelFormat,
    LabelOrder,
)
from simulator.labels.batch.manifest import MadeLabel
from simulator.labels.errors import LabelError
from simulator.labels.payload import DEFAULT_TEMPLATE, IdentifierTemplate, Payload, open_payload
from simulator.labels.printing.estimate import PrintEstimate, estimate
from simulator.labels.printing.options import PrintOptions
from simulator.labels.symbol.decoders import Decoder, panel
from simulator.labels.symbol.proving import PrintSize, check_room, prove

OnProgress = Callable[[int, int], None]
"""Called with labels done and labels in all."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A finished batch.

    Attributes:
        folder: where it is.
        labels: in the order of their serials.
        decoders: the panel that read each of them.
        files: format -> the files that hold all labels together.
        manifest_csv: the table of labels.
        manifest_json: the same with all particulars.
    """

    folder: Path
    labels: tuple[MadeLabel, ...]
    decoders: tuple[str, ...]
    files: Mapping[str, tuple[Path, ...]]
    manifest_csv: Path
    manifest_json: Path

    @property
    def sheet(self) -> Path | None:
        """The PDF, or the first of several, when asked for."""
        return next(iter(self.files.get("pdf", ())), None)

    @property
    def estimate(self) -> PrintEstimate:
        """How the least of the labels may print."""
        return min((label.estimate for label in self.labels), key=lambda found: (found.grade, found.module_mm))

    @property
    def retaken(self) -> int:
        """Labels whose first candidate some decoder did not read, so that another was taken."""
        return sum(1 for label in self.labels if label.missed)


@dataclass(frozen=True, slots=True)
class _Job:
    """What all labels of a batch share, checked."""

    setup: BatchSetup
    level: str
    label_formats: Mapping[str, LabelFormat]
    batch_formats: Mapping[str, BatchFormat]
    decoders: tuple[Decoder, ...]


def make_labels(
    *,
    product_id: str,
    count: int,
    out: Path | str,
    template: str = DEFAULT_TEMPLATE,
    first_serial: int = 1,
    size_mm: float | None = None,
    dpi: int = 300,
    level: str = "M",
    formats: Iterable[str] = DEFAULT_FORMATS,
    printing: PrintOptions | None = None,
    profile: Payload | str = "json",
    replace: bool = False,
    decoders: Sequence[Decoder] | None = None,
    on_progress: OnProgress | None = None,
) -> Batch:
    """Make ``count`` labels, each read back by every decoder from its drawn image before it is written.

    Equal arguments and an equal panel give byte-identical files.

    Args:
        product_id: the product on every label.
        count: how many, at least 1.
        out: the folder; made when missing.
        template: identifiers, such as ``SIM-{serial:06d}``.
        first_serial: the first label's serial, at least 0.
        size_mm: the longest edge of a code, quiet zone counted; by default 25, or what the label holds.
        dpi: the printer's resolution; a module is a whole number of its dots.
        level: the lowest error correction level: L, M, Q or H.
        formats: keys of :data:`FORMATS`; the manifest is always written.
        printing: options of the printed formats.
        profile: of the payload: a name that needs nothing else, or what ``open_payload`` gave.
        replace: overwrite another batch in the folder.
        decoders: the panel; by default the one of this machine.
        on_progress: told after each label.

    Raises:
        LabelError: bad argument, text too long for the size, unwritable folder: one line that names the fix.
        LabelsExist: the folder holds other labels and ``replace`` is false.
        UnreadableLabel: no candidate for a label was read by the whole panel.
    """
    if not product_id:
        raise LabelError("the product id is empty: give --product-id, as POST /products answered it")
    wanted = _formats(formats)
    payload = open_payload(profile) if isinstance(profile, str) else profile
    orders = [
        LabelOrder(index, serial, identifier, product_id, payload.text(product_id, identifier))
        for index, (serial, identifier) in enumerate(IdentifierTemplate(template).identifiers(first_serial, count))
    ]
    printing = printing or PrintOptions()
    size_mm = printing.fitting_size_mm(wanted) if size_mm is None else size_mm
    setup = BatchSetup(
        product_id, PrintSize(size_mm, dpi), printing, count, orders[0].identifier, orders[-1].identifier
    )
    readers = panel() if decoders is None else tuple(decoders)
    # The longest first: what cannot be printed is refused before anything is written.
    longest = max((order.text for order in orders), key=_size_bytes)
    check_room(longest, size=setup.size, level=level)
    job = _check(setup, level, wanted, readers)
    prove(longest, size=setup.size, level=level, panel=readers)
    described = {
        "product_id": product_id,
        "count": count,
        "template": template,
        "first_serial": first_serial,
        **payload.described,
        "level": level,
        "size_mm": float(size_mm),
        "dpi": dpi,
        "formats": sorted(wanted),
        **printing.described(),
    }
    endings = {name: form.ending for name, form in FORMATS.items()}
    folder = LabelFolder(Path(out), described, replace=replace, endings=endings)
    labels = []
    for order in orders:
        labels.append(_make_one(job, folder, order))
        if on_progress:
            on_progress(order.index + 1, count)
    return _finish(job, folder, described, tuple(labels))


def _size_bytes(text: str) -> int:
    return len(text.encode())


def _formats(words: Iterable[str]) -> tuple[str, ...]:
    """The formats asked for, in the order of the table.

    Raises:
        LabelError: none, or one that does not exist.
    """
    wanted = frozenset(words)
    if not wanted or wanted - set(FORMATS):
        unknown = ", ".join(sorted(wanted - set(FORMATS))) or "none"
        raise LabelError(f"formats: {unknown} asked for; give one or more of {', '.join(FORMATS)}")
    return tuple(name for name in FORMATS if name in wanted)


def _check(setup: BatchSetup, level: str, wanted: Sequence[str], decoders: tuple[Decoder, ...]) -> _Job:
    for name in wanted:
        FORMATS[name].check(setup)
    formats = {name: FORMATS[name] for name in wanted}
    return _Job(
        setup,
        level,
        {name: form for name, form in formats.items() if isinstance(form, LabelFormat)},
        {name: form for name, form in formats.items() if isinstance(form, BatchFormat)},
        decoders,
    )


def _make_one(job: _Job, folder: LabelFolder, order: LabelOrder) -> MadeLabel:
    symbol = prove(order.text, size=job.setup.size, level=job.level, panel=job.decoders)
    stem = file_stem(order.identifier)
    return MadeLabel(
        serial=order.serial,
        identifier=order.identifier,
        product_id=order.product_id,
        text=order.text,
        matrix=symbol.matrix,
        module_mm=symbol.module_mm,
        dots_per_module=symbol.dots_per_module,
        taken=symbol.taken,
        missed=symbol.missed,
        estimate=estimate(
            dots_per_module=symbol.dots_per_module, dpi=job.setup.size.dpi, assumed=job.setup.printing.assumed
        ),
        files={
            name: folder.write(stem + form.ending, form.draw(job.setup, order, symbol))
            for name, form in job.label_formats.items()
        },
        place={
            member: value
            for form in job.batch_formats.values()
            for member, value in form.place(job.setup, order.index).items()
        },
    )


def _finish(job: _Job, folder: LabelFolder, described: dict[str, Any], labels: tuple[MadeLabel, ...]) -> Batch:
    files: dict[str, tuple[Path, ...]] = {
        name: tuple(folder.write(file.name, b"".join(file.data)) for file in form.draw(job.setup, iter(labels)))
        for name, form in job.batch_formats.items()
    }
    names = tuple(decoder.name for decoder in job.decoders)
    table = folder.write(MANIFEST_CSV, manifest.as_csv(names, labels))
    kept = {path.name for label in labels for path in label.files.values()}
    kept |= {path.name for found in files.values() for path in found}
    document = manifest.as_json(
        described, names, labels, {name: [path.name for path in found] for name, found in files.items()}
    )
    return Batch(folder.path, labels, names, files, table, folder.finish(kept, document))
