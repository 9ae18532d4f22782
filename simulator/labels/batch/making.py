"""Make a batch of labels: encode, draw, prove, write."""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

from simulator.labels.batch import manifest
from simulator.labels.batch.folder import MANIFEST_CSV, MANIFEST_JSON, LabelFolder
from simulator.labels.batch.formats import (
    DEFAULT_FORMATS,
    FORMATS,
    BatchFormat,
    BatchSetup,
    LabelFormat,
)
from simulator.labels.batch.label_work import ProvingWork, label_of_manifest, made_label
from simulator.labels.batch.ledger import Ledger
from simulator.labels.batch.manifest import MadeLabel
from simulator.labels.batch.orders import Orders, SerialOrders, counted, from_table, in_portions, reserved
from simulator.labels.batch.shared_devices import shared_devices
from simulator.labels.errors import LabelError
from simulator.labels.payload import DEFAULT_TEMPLATE, Payload, open_payload
from simulator.labels.printing.estimate import PrintAssumptions, PrintEstimate
from simulator.labels.printing.options import PrintOptions
from simulator.labels.processes import run_ordered
from simulator.labels.symbol.decoders import Decoder, lone_decoder_warning, panel
from simulator.labels.symbol.proving import PrintSize, check_room, prove

OnProgress = Callable[[int, int], None]
"""Called with labels done and labels in all."""
_PORTION_LABELS: Final = 16
_PORTION_BYTES: Final = 4096
_LABELS_PER_WORKER_MIN: Final = 100
"""Fewer are made sooner than a further process has started."""


@dataclass(frozen=True)
class Batch:
    """A finished batch of labels.

    Attributes:
        folder: where it is.
        count: labels in it.
        first: the first of them.
        last: the last; perhaps the same.
        estimate: how the least of them may print.
        assumed: what the estimates assume.
        retaken: labels whose first candidate some decoder did not read, so that another was taken.
        resumed: labels that were there from an interrupted run and were not made again.
        decoders: the panel that read each of them.
        warnings: what a user has to know about it.
        files: format -> the files that hold all labels together.
        manifest_csv: the table of labels.
        manifest_json: the same with all particulars.
    """

    folder: Path
    count: int
    first: MadeLabel
    last: MadeLabel
    estimate: PrintEstimate
    assumed: PrintAssumptions
    retaken: int
    resumed: int
    decoders: tuple[str, ...]
    warnings: tuple[str, ...]
    files: Mapping[str, tuple[Path, ...]]
    manifest_csv: Path
    manifest_json: Path

    @property
    def sheet(self) -> Path | None:
        """The PDF, or the first of several, when asked for."""
        return next(iter(self.files.get("pdf", ())), None)

    @cached_property
    def labels(self) -> tuple[MadeLabel, ...]:
        """All labels in their order, read from the manifest when they are first asked for."""
        return tuple(self.iter_labels())

    def iter_labels(self) -> Iterator[MadeLabel]:
        """The labels one after the other, for batches larger than the memory."""
        kinds = [name for name, form in FORMATS.items() if isinstance(form, LabelFormat)]
        read = manifest.read_manifest(self.manifest_json)
        for entry in read.labels():
            yield label_of_manifest(entry, batch=read.batch, assumed=self.assumed, kinds=kinds, path=self.folder)


@dataclass(frozen=True, slots=True)
class _Job:
    """What is to be made, checked."""

    orders: Orders
    setup: BatchSetup
    level: str
    formats: tuple[str, ...]
    readers: tuple[Decoder, ...]
    by_name: bool
    notes: tuple[str, ...] = ()

    @property
    def decoder_names(self) -> tuple[str, ...]:
        return tuple(reader.name for reader in self.readers)

    @property
    def warnings(self) -> tuple[str, ...]:
        warning = lone_decoder_warning(self.decoder_names)
        return (warning,) if warning else ()


def make_labels(
    *,
    product_id: str | None = None,
    count: int = 1,
    out: Path | str,
    template: str = DEFAULT_TEMPLATE,
    first_serial: int | None = None,
    devices: Path | str | None = None,
    skip_bad: bool = False,
    ledger: Path | str | None = None,
    size_mm: float | None = None,
    dpi: int = 300,
    level: str = "M",
    formats: Iterable[str] = DEFAULT_FORMATS,
    printing: PrintOptions | None = None,
    profile: Payload | str = "json",
    replace: bool = False,
    decoders: Iterable[Decoder] | Iterable[str] | None = None,
    jobs: int = 1,
    on_progress: OnProgress | None = None,
) -> Batch:
    """Make a batch of labels, each read back by every decoder from its drawn image before it is written.

    Equal arguments and an equal panel give byte-identical files, for any number of ``jobs``. A batch that was
    interrupted is completed by the same call; what was proven is not made again.

    Args:
        product_id: the product on every label; of a table, on every row that names none.
        count: how many, at least 1.
        out: the folder; made when missing.
        template: identifiers, such as ``SIM-{serial:06d}``.
        first_serial: the first label's serial, at least 0; by default 1, or the next free one of the ledger.
        devices: a table of devices (CSV or YAML) instead of ``count``.
        skip_bad: make the good rows of a table that has bad ones.
        ledger: a file that remembers which serials are taken.
        size_mm: the longest edge of a code, quiet zone counted; by default 25, or what the label holds.
        dpi: the printer's resolution; a module is a whole number of its dots.
        level: the lowest error correction level: L, M, Q or H.
        formats: keys of :data:`FORMATS`; the manifest is always written.
        printing: options of the printed formats.
        profile: of the payload: a name that needs nothing else, or what ``open_payload`` gave.
        replace: overwrite another batch in the folder.
        decoders: the panel, by name or as objects (then ``jobs`` has to be 1); by default all of this machine.
        jobs: processes; a batch of a few hundred takes fewer. More than 1 needs a main module that can be imported.
        on_progress: called after each label.

    Raises:
        LabelError: bad argument, text too long for the size, unwritable folder: one line that names the fix.
        BadRows: the table has bad rows and ``skip_bad`` is false.
        LabelsExist: the folder holds other labels and ``replace`` is false.
        UnreadableLabel: no candidate for a label was read by the whole panel.
    """
    if jobs < 1:
        raise LabelError(f"jobs is {jobs}: give 1 or more")
    wanted = _formats(formats)
    printing = printing or PrintOptions()
    size = PrintSize(printing.fitting_size_mm(wanted) if size_mm is None else size_mm, dpi)
    payload = open_payload(profile) if isinstance(profile, str) else profile
    readers, by_name = _readers(decoders)
    if jobs > 1 and not by_name:
        raise LabelError("decoders of your own work in one process: give jobs=1")
    orders: Orders
    notes: tuple[str, ...] = ()
    if devices is not None:
        orders, notes = from_table(
            Path(devices), product_id=product_id, skip_bad=skip_bad, write_text=payload.text, size=size, level=level
        )
    else:
        orders = counted(
            product_id=product_id, count=count, template=template, first_serial=first_serial, write_text=payload.text
        )
    # Before a serial is taken: what cannot be made must not use any up.
    setup = _setup(orders, size, printing)
    longest = orders.longest()
    takes = partial(_takes, orders, printing=printing, formats=wanted, level=level, readers=readers)
    check_room(longest, size=size, level=level, takes=takes)
    for name in wanted:
        FORMATS[name].check(setup)
    prove(longest, size=size, level=level, panel=readers)
    reservation = None
    if ledger is not None:
        if not isinstance(orders, SerialOrders):
            raise LabelError(
                "a table brings its own identifiers, and they are compared with the batches beside --out anyway: give "
                "--ledger or --from, not both"
            )
        orders, reservation, notes = reserved(Ledger(Path(ledger)), orders, Path(out), first_serial)
        setup = _setup(orders, size, printing)
    notes = (*notes, *shared_devices(orders, Path(out), MANIFEST_JSON))
    job = _Job(orders, setup, level, wanted, readers, by_name, notes)
    described = {
        **orders.described(),
        **payload.described,
        "level": level,
        "size_mm": float(size.size_mm),
        "dpi": dpi,
        "formats": sorted(wanted),
        **printing.described(),
    }
    batch = _make(job, Path(out), described, replace=replace, jobs=jobs, on_progress=on_progress)
    if reservation is not None and ledger is not None:
        Ledger(Path(ledger)).made(reservation)
    return batch


def _takes(
    orders: Orders,
    size: PrintSize,
    *,
    printing: PrintOptions,
    formats: Iterable[str],
    level: str,
    readers: Sequence[Decoder],
) -> bool:
    """Whether the longest label of a batch could be made in this size, in all formats, and is read."""
    setup = _setup(orders, size, printing)
    try:
        for name in formats:
            FORMATS[name].check(setup)
        prove(orders.longest(), size=size, level=level, panel=readers)
    except LabelError:
        return False
    return True


def _setup(orders: Orders, size: PrintSize, printing: PrintOptions) -> BatchSetup:
    first, last = orders.label(0), orders.label(orders.count - 1)
    return BatchSetup(
        first.product_id, size, printing, orders.count, first.identifier, last.identifier, orders.samples()
    )


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


def _readers(decoders: Iterable[Decoder] | Iterable[str] | None) -> tuple[tuple[Decoder, ...], bool]:
    """The panel, and whether another process can load it by its names."""
    if decoders is None:
        return panel(), True
    given: list[Decoder | str] = list(decoders)
    names = [each for each in given if isinstance(each, str)]
    if names or not given:
        return panel(names), True
    return tuple(each for each in given if not isinstance(each, str)), False


def _make(
    job: _Job,
    out: Path,
    described: Mapping[str, Any],
    *,
    replace: bool,
    jobs: int,
    on_progress: OnProgress | None,
) -> Batch:
    header = {
        "format": "device-agent/labels-journal/1",
        "batch": dict(described),
        "decoders": list(job.decoder_names),
        "encoder": importlib.metadata.version("zxing-cpp"),
    }
    endings = {name: form.ending for name, form in FORMATS.items()}
    folder = LabelFolder(out, header, replace=replace, endings=endings)
    try:
        resumed = _prove_all(job, folder, jobs, on_progress)
        return _finish(job, folder, described, resumed)
    finally:
        folder.close()


def _prove_all(job: _Job, folder: LabelFolder, jobs: int, on_progress: OnProgress | None) -> int:
    """Make what the journal lacks, and what it has but the disk lost; returns how many labels were left alone."""
    journal = folder.journal
    known = journal.done
    lost: list[int] = []
    for index, record in enumerate(journal.records()):  # every file is read again, which takes its time
        if not journal.whole(record):
            lost.append(index)
        elif on_progress:
            on_progress(index + 1 - len(lost), job.orders.count)
    again = len(lost)
    work = ProvingWork(
        job.setup,
        job.level,
        job.formats,
        folder.files,
        job.decoder_names if job.by_name and jobs > 1 else job.readers,
    )
    indexes = itertools.chain(lost, range(known, job.orders.count))
    portions = in_portions(map(job.orders.label, indexes), labels_max=_PORTION_LABELS, bytes_max=_PORTION_BYTES)
    missing = again + job.orders.count - known
    processes = max(1, min(jobs, missing // _LABELS_PER_WORKER_MIN))
    with contextlib.closing(run_ordered(work, portions, processes)) as lines:
        for number, line in enumerate(lines):
            if number >= again:  # a file that was lost is made from what is known: the journal has its line
                journal.append(line)
            if number % _PORTION_LABELS == 0:
                journal.flush()
            if on_progress:
                on_progress(job.orders.count - missing + number + 1, job.orders.count)
    return known - again


def _finish(job: _Job, folder: LabelFolder, described: Mapping[str, Any], resumed: int) -> Batch:
    def labels() -> Iterator[MadeLabel]:
        for index, record in enumerate(folder.journal.records()):
            yield made_label(record, index, job.setup, job.formats, folder.path)

    files: dict[str, tuple[Path, ...]] = {}
    for name in job.formats:
        form = FORMATS[name]
        if isinstance(form, BatchFormat):
            files[name] = tuple(
                folder.files.write_stream(file.name, file.data) for file in form.draw(job.setup, labels())
            )
    retaken = 0
    ends: list[MadeLabel] = []
    estimates: dict[int, PrintEstimate] = {}

    def counted_labels() -> Iterator[MadeLabel]:
        nonlocal retaken
        for label in labels():
            retaken += bool(label.missed)
            estimates.setdefault(label.dots_per_module, label.estimate)
            ends[1:] = [label]
            yield label

    table = folder.files.write_stream(MANIFEST_CSV, manifest.as_csv(job.decoder_names, counted_labels()))
    names = {name: [path.name for path in found] for name, found in files.items()}
    own = (name for record in folder.journal.records() for name, _ in record["files"].values())
    kept = itertools.chain(own, *names.values())
    document = manifest.as_json(
        described,
        decoders=job.decoder_names,
        warnings=job.warnings,
        files=names,
        estimates=estimates,
        labels=labels(),
    )
    count = folder.journal.done
    written = folder.finish(kept, document)
    return Batch(
        folder=folder.path,
        count=count,
        first=ends[0],
        last=ends[-1],
        estimate=min(estimates.values(), key=lambda found: (found.grade, found.module_mm)),
        assumed=job.setup.printing.assumed,
        retaken=retaken,
        resumed=resumed,
        decoders=job.decoder_names,
        warnings=(*job.warnings, *job.notes),
        files=files,
        manifest_csv=table,
        manifest_json=written,
    )
