"""Make a batch of labels: encode, draw, prove, write."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_changes
from functools import partial
from pathlib import Path
from typing import Any, Final

from simulator.labels.batch import manifest
from simulator.labels.batch.folder import MANIFEST_CSV, FileWriter, LabelFolder, file_stem
from simulator.labels.batch.formats import (
    DEFAULT_FORMATS,
    ENDINGS,
    FORMATS,
    BatchFormat,
    BatchSetup,
    LabelFormat,
    check_formats,
)
from simulator.labels.batch.ledger import Ledger, Reservation
from simulator.labels.batch.manifest import MadeLabel
from simulator.labels.batch.orders import LabelOrder, Orders, WriteText, counted, from_table
from simulator.labels.errors import LabelError
from simulator.labels.payload import DEFAULT_TEMPLATE, IdentifierTemplate, Payload, open_payload
from simulator.labels.printing.options import PrintOptions
from simulator.labels.processes import run_ordered
from simulator.labels.symbol.decoders import Decoder, lone_decoder_warning, panel
from simulator.labels.symbol.proving import PrintSize, check_room, prove

OnProgress = Callable[[int, int], None]
"""Called with labels done and labels in all."""
_AT_ONCE: Final = 16
_LABELS_PER_WORKER_MIN: Final = 100
"""Fewer are made sooner than a further process has started."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A finished batch of labels.

    Attributes:
        folder: where it is.
        labels: in their order; at least one.
        decoders: the panel that read each of them.
        warnings: what a user has to know about it.
        files: format -> the file that holds all labels together.
        manifest_csv: the table of labels.
        manifest_json: the same with all particulars.
    """

    folder: Path
    labels: tuple[MadeLabel, ...]
    decoders: tuple[str, ...]
    warnings: tuple[str, ...]
    files: Mapping[str, Path]
    manifest_csv: Path
    manifest_json: Path

    @property
    def sheet(self) -> Path | None:
        """The PDF, when asked for."""
        return self.files.get("pdf")

    @property
    def retaken(self) -> int:
        """Labels whose first candidate some decoder did not read, so that another was taken."""
        return sum(1 for label in self.labels if label.missed)


def make_labels(
    *,
    product_id: str | None = None,
    count: int = 1,
    out: Path | str,
    template: str = DEFAULT_TEMPLATE,
    first_serial: int | None = None,
    devices: Path | str | None = None,
    ledger: Path | str | None = None,
    size_mm: float | None = None,
    dpi: int = 300,
    formats: Iterable[str] = DEFAULT_FORMATS,
    printing: PrintOptions | None = None,
    profile: Payload | str = "json",
    replace: bool = False,
    decoders: Sequence[Decoder] | None = None,
    jobs: int = 1,
    on_progress: OnProgress | None = None,
) -> Batch:
    """Make a batch of labels, each read back by every decoder from its drawn image before it is written.

    Equal arguments and an equal panel give equal files, for any number of ``jobs``.

    Args:
        product_id: the product on every label; of a table, on every row that names none.
        count: how many, at least 1.
        out: the folder; made when missing.
        template: identifiers, such as ``SIM-{serial:06d}``.
        first_serial: the first label's serial, at least 0; by default 1, or the next free one of the ledger.
        devices: a table of devices (CSV or YAML) instead of ``count``.
        ledger: a file that remembers which serials are taken.
        size_mm: the longest edge of a code, quiet zone counted; by default 25, or what the label holds.
        dpi: the printer's resolution; a module is a whole number of its dots.
        formats: keys of :data:`FORMATS`; the manifest is always written.
        printing: options of the printed formats.
        profile: of the payload: a name that needs nothing else, or what ``open_payload`` gave.
        replace: overwrite another batch in the folder.
        decoders: the panel (then ``jobs`` has to be 1); by default all of this machine.
        jobs: processes; a batch of a few hundred takes fewer. More than 1 needs a main module that can be imported.
        on_progress: called after each label.

    Raises:
        LabelError: bad argument, text too long for the size, unwritable folder: one line that names the fix.
        BadRows: the table has bad rows.
        LabelsExist: the folder holds other labels and ``replace`` is false.
        UnreadableLabel: no candidate for a label was read by the whole panel.
    """
    if jobs < 1 or (jobs > 1 and decoders is not None):
        raise LabelError(f"jobs is {jobs}: give 1 or more; 1 with decoders of your own")
    words = _formats(formats)
    printing = printing or PrintOptions()
    size = PrintSize(printing.fitting_size_mm(words) if size_mm is None else size_mm, dpi)
    payload = open_payload(profile) if isinstance(profile, str) else profile
    readers = panel() if decoders is None else tuple(decoders)
    reservation = None
    if devices is None:
        numbered = partial(_numbered, product_id, count, template, payload.text)
        orders = numbered(1 if first_serial is None else first_serial)
    else:
        if ledger is not None:
            raise LabelError("a table brings its own identifiers: give --ledger or --from, not both")
        orders = from_table(Path(devices), product_id=product_id, write_text=payload.text, size=size)
    # Before a serial is taken: what cannot be made must not use any up.
    takes = partial(_takes, orders, printing=printing, formats=words, readers=readers)
    check_room(orders.longest, size=size, takes=takes)
    check_formats(words, _setup(orders, size, printing))
    prove(orders.longest, size=size, panel=readers)
    if devices is None and ledger is not None:
        reservation, orders = _reserved(Ledger(Path(ledger)), numbered, orders, Path(out), first_serial)
    described = {
        **orders.described,
        **payload.described,
        "size_mm": float(size.size_mm),
        "dpi": dpi,
        "formats": list(words),
        **printing.described(),
        "decoders": [reader.name for reader in readers],
        "encoder": f"zxing-cpp {importlib.metadata.version('zxing-cpp')}",
    }
    folder = LabelFolder(Path(out), described, replace=replace, endings=ENDINGS)
    with contextlib.closing(folder):
        work = _Work(size, words, folder.files, readers if jobs == 1 else None)
        processes = max(1, min(jobs, len(orders.labels) // _LABELS_PER_WORKER_MIN))
        labels: list[MadeLabel] = []
        with contextlib.closing(run_ordered(work.start, orders.labels, processes, at_once=_AT_ONCE)) as made:
            for label in made:
                labels.append(label)
                if on_progress:
                    on_progress(len(labels), len(orders.labels))
        batch = _write(folder, labels, described, setup=_setup(orders, size, printing), notes=orders.notes)
    if reservation is not None and ledger is not None:
        Ledger(Path(ledger)).made(reservation)
    return batch


def _numbered(product_id: str | None, count: int, template: str, write_text: WriteText, first_serial: int) -> Orders:
    return counted(
        product_id=product_id, count=count, template=template, first_serial=first_serial, write_text=write_text
    )


def _reserved(
    ledger: Ledger, numbered: Callable[[int], Orders], orders: Orders, folder: Path, first_serial: int | None
) -> tuple[Reservation, Orders]:
    """Serials that nobody else gets, and the labels with them.

    Raises:
        LabelError: see :meth:`Ledger.take`; or the template has no serial.
    """
    template = str(orders.described["template"])
    if not IdentifierTemplate(template).varies:
        raise LabelError(f"template {template!r} has no serial to keep a ledger of: add {{serial:06d}}")
    taken = ledger.take(
        product_id=orders.labels[0].product_id,
        template=template,
        count=len(orders.labels),
        folder=folder,
        first_serial=first_serial,
    )
    own = taken.reservation
    orders = numbered(own.first_serial)
    notes = [taken.note] if taken.note else []
    if taken.again:
        notes.append(f"serials {own.first_serial} to {own.next_serial - 1} were reserved for this folder already")
    return own, with_changes(orders, described={**orders.described, "reservation": own.number}, notes=tuple(notes))


def _takes(
    orders: Orders, size: PrintSize, *, printing: PrintOptions, formats: Sequence[str], readers: Sequence[Decoder]
) -> bool:
    """Whether the longest label of a batch could be made in this size, in all formats, and is read."""
    try:
        check_formats(formats, _setup(orders, size, printing))
        prove(orders.longest, size=size, panel=readers)
    except LabelError:
        return False
    return True


def _setup(orders: Orders, size: PrintSize, printing: PrintOptions) -> BatchSetup:
    first, last = orders.labels[0], orders.labels[-1]
    title = f"{first.product_id}: {first.identifier} to {last.identifier}"
    return BatchSetup(title, size, printing, orders.samples)


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


@dataclass(frozen=True, slots=True)
class _Work:
    """Prove a label and write its files; it may go to another process.

    Attributes:
        size: the room for a code, and the printer.
        formats: the words of the formats asked for.
        files: writes into the folder.
        readers: the panel; None where a process has to load its own.
    """

    size: PrintSize
    formats: tuple[str, ...]
    files: FileWriter
    readers: tuple[Decoder, ...] | None

    def start(self) -> Callable[[LabelOrder], MadeLabel]:
        """The function that makes one label."""
        readers = panel() if self.readers is None else self.readers
        drawn = [(name, form) for name in self.formats if isinstance(form := FORMATS[name], LabelFormat)]

        def make(order: LabelOrder) -> MadeLabel:
            symbol = prove(order.text, size=self.size, panel=readers)
            stem = file_stem(order.identifier)
            return MadeLabel(
                order=order,
                matrix=symbol.matrix,
                module_mm=symbol.module_mm,
                dots_per_module=symbol.dots_per_module,
                verdicts=dict(symbol.taken.verdicts),
                missed=len(symbol.missed),
                files={name: self.files.write(stem + form.ending, form.draw(order, symbol)) for name, form in drawn},
            )

        return make


def _write(
    folder: LabelFolder,
    labels: Sequence[MadeLabel],
    described: Mapping[str, Any],
    *,
    setup: BatchSetup,
    notes: tuple[str, ...],
) -> Batch:
    """The files of all labels together, and the manifests."""
    decoders = tuple(labels[0].verdicts)
    warning = lone_decoder_warning(decoders)
    warnings = (warning,) if warning else ()
    batched = [(name, form) for name in described["formats"] if isinstance(form := FORMATS[name], BatchFormat)]
    files = {name: folder.files.write(form.name, form.draw(setup, labels)) for name, form in batched}
    table = folder.files.write(MANIFEST_CSV, manifest.as_csv(labels))
    kept = [path.name for paths in (files, *(label.files for label in labels)) for path in paths.values()]
    document = manifest.as_json(described, warnings=warnings, files=files, labels=labels)
    written = folder.finish(kept, document)
    return Batch(folder.path, tuple(labels), decoders, (*warnings, *notes), files, table, written)
