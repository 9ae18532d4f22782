"""Make a batch of labels: each code written, read back, stored; then the sheet, the printer's file, the manifest."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from simulator.file_lock import lock_file
from simulator.labels.errors import LabelError
from simulator.labels.grid import Grid, open_sheet
from simulator.labels.identifiers import DEFAULT_TEMPLATE, IdentifierTemplate
from simulator.labels.layout import lay_out
from simulator.labels.ledger import Ledger
from simulator.labels.manifest import MANIFEST_CSV, MANIFEST_JSON, MadeLabel, as_csv, as_rows
from simulator.labels.payload import LabelOrder, Payload
from simulator.labels.sheet import draw_sheet
from simulator.labels.symbol import PrintSize, draw_svg, make_symbol
from simulator.labels.table import read_table
from simulator.labels.zpl import draw_zpl, require_zebra
from simulator.whole_files import UNFINISHED, cannot_write, write_whole

FORMATS: Final = ("png", "svg", "pdf", "zpl")
"""A picture for each label, a drawing for each label, one sheet, one file for Zebra printers."""
DEFAULT_FORMATS: Final = ("png", "svg", "pdf")
SHEET_PDF: Final = "sheet.pdf"
LABELS_ZPL: Final = "labels.zpl"
_STEM_MAX: Final = 80
_AT_ONCE: Final = 16
_LABELS_PER_WORKER_MIN: Final = 100
"""Fewer are made sooner than a further process has started."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A finished batch of labels.

    Attributes:
        folder: where it is.
        labels: in their order; at least one.
        files: ``pdf`` or ``zpl`` -> the file that holds all labels together.
        notes: what a user has to know about it.
    """

    folder: Path
    labels: tuple[MadeLabel, ...]
    files: dict[str, Path]
    notes: tuple[str, ...]

    @property
    def sheet(self) -> Path | None:
        """The PDF, when asked for."""
        return self.files.get("pdf")


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
    sheet: str = "a4",
    payload: Payload | None = None,
    jobs: int = 1,
    on_progress: Callable[[int, int], None] | None = None,
) -> Batch:
    """Make a batch of labels. Equal arguments give equal files; a batch that was ended early is completed by them.

    Args:
        product_id: the product on every label; of a table, on every row that names none.
        count: how many, at least 1.
        out: the folder; made when missing.
        template: identifiers, such as ``SIM-{serial:06d}``.
        first_serial: the first label's serial, at least 0; None for 1, or the next free one of the ledger.
        devices: a table of devices instead of ``count``.
        ledger: a file that remembers which serials are taken.
        size_mm: the longest edge of a code, quiet zone counted; None for 25, or what a label holds.
        dpi: the printer's resolution; a module is a whole number of its dots.
        formats: of :data:`FORMATS`; the manifest is always written.
        sheet: what the labels are printed on, see :func:`simulator.labels.grid.open_sheet`.
        payload: how the codes' texts are written; None for unsigned JSON.
        jobs: processes; a batch of a few hundred takes fewer. More than 1 needs a main module that can be imported.
        on_progress: called with labels done and labels in all.

    Raises:
        LabelError: bad argument, bad rows, text too long for the size, unwritable folder, a folder with something
            else, a code that zxing-cpp does not read: the message names the fix.
    """
    wanted = set(formats)
    if not wanted or wanted - set(FORMATS):
        raise LabelError(f"formats: {', '.join(sorted(wanted)) or 'none'} asked for; there is {', '.join(FORMATS)}")
    words = tuple(name for name in FORMATS if name in wanted)
    grid, edge_mm = open_sheet(sheet, size_mm)
    size = PrintSize(edge_mm, dpi)
    payload = payload or Payload()
    notes: list[str] = []
    if devices is not None:
        if ledger is not None:
            raise LabelError("a table brings its own identifiers: give --ledger or --from, not both")
        orders, notes = read_table(Path(devices), product_id=product_id, payload=payload)
        _require_possible(orders, words, grid, size)
    else:
        orders = _counted(product_id, template, 1 if first_serial is None else first_serial, count, payload)
        _require_possible(orders, words, grid, size)  # before a serial is taken: what fails must not use any up
        if ledger is not None:
            first, again = _take_serials(Path(ledger), orders, template, Path(out), first_serial)
            orders = _counted(product_id, template, first, count, payload)
            if again:
                notes.append(f"serials {first} to {first + count - 1} were reserved for this folder already")
    batch = {
        "count": len(orders),
        "first": orders[0].identifier,
        "last": orders[-1].identifier,
        **payload.described,
        "size_mm": edge_mm,
        "dpi": dpi,
        "formats": list(words),
        "sheet": grid.model_dump(),
        "labels_sha256": hashlib.sha256(
            json.dumps([[*order.printed, order.text] for order in orders]).encode()
        ).hexdigest(),
    }
    folder = Path(out)
    try:
        with _own_folder(folder, batch):
            labels = _make_all(orders, _Work(folder, words, size), jobs, on_progress)
            files = _write_together(folder, labels, words, grid)
            rows = as_rows(labels)
            write_whole(folder / MANIFEST_CSV, as_csv(rows))
            names = {name: path.name for name, path in files.items()}
            document = {"batch": batch, "notes": notes, "files": names, "labels": rows}
            write_whole(folder / MANIFEST_JSON, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    except OSError as problem:
        raise LabelError(cannot_write(folder, problem, "another --out")) from None
    if ledger is not None and devices is None:
        Ledger(Path(ledger)).finish(product_id=orders[0].product_id, template=template, first_serial=orders[0].serial)
    return Batch(folder, tuple(labels), files, tuple(notes))


def _counted(product_id: str | None, template: str, first: int, count: int, payload: Payload) -> list[LabelOrder]:
    if not product_id:
        raise LabelError("the product id is empty: give --product-id, as POST /products answered it")
    return [
        LabelOrder(serial, identifier, product_id, "", payload.text(product_id, identifier))
        for serial, identifier in IdentifierTemplate(template).identifiers(first, count)
    ]


def _take_serials(
    ledger: Path, orders: Sequence[LabelOrder], template: str, folder: Path, first_serial: int | None
) -> tuple[int, bool]:
    if not IdentifierTemplate(template).varies:
        raise LabelError(f"template {template!r} has no serial to keep a ledger of: add {{serial:06d}}")
    return Ledger(ledger).take(
        product_id=orders[0].product_id,
        template=template,
        count=len(orders),
        folder=folder,
        first_serial=first_serial,
    )


def _require_possible(orders: Sequence[LabelOrder], formats: Sequence[str], grid: Grid, size: PrintSize) -> None:
    """Make the longest code and lay out the longest lines, before anything is written.

    Raises:
        LabelError: they do not fit.
    """
    edge_mm = make_symbol(max((order.text for order in orders), key=len), size).edge_mm
    if "zpl" in formats:
        require_zebra(size.dpi)
    if "zpl" in formats or "pdf" in formats:
        for part in ("identifier", "name", "printed"):
            longest = max(orders, key=lambda order: len("".join(getattr(order, part))))
            lay_out(grid, edge_mm, longest.printed)


@contextlib.contextmanager
def _own_folder(folder: Path, batch: dict[str, Any]) -> Iterator[None]:
    """A folder that holds this batch or nothing, for this process alone; what is unfinished is marked.

    Raises:
        LabelError: it holds something else, or another process is at work in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    mark, manifest = folder / UNFINISHED, folder / MANIFEST_JSON
    is_new = not any(folder.iterdir())
    with os.fdopen(os.open(mark, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666), "r+b") as file:
        try:
            lock_file(file.fileno())
        except OSError:
            raise LabelError(
                f"another process makes labels in {folder}: wait for it, or choose another --out"
            ) from None
        file.seek(0)
        before = file.read()
        try:
            found = json.loads(before) if before else json.loads(manifest.read_bytes())["batch"]
        except (OSError, ValueError, KeyError, TypeError):
            found = batch if is_new else None
        if found != batch:
            if not before:
                mark.unlink()
            raise LabelError(f"{folder} holds something else than this batch: choose another --out, or delete it")
        if not before:
            file.write(json.dumps(batch).encode())
            file.flush()
        yield
        mark.unlink()


@dataclass(frozen=True, slots=True)
class _Work:
    """Makes one label and writes its files; it may go to another process."""

    folder: Path
    formats: tuple[str, ...]
    size: PrintSize

    def __call__(self, order: LabelOrder) -> MadeLabel:
        symbol = make_symbol(order.text, self.size)
        stem = self.folder / file_stem(order)
        files = {}
        if "png" in self.formats:
            files["png"] = write_whole(stem.with_name(stem.name + ".png"), symbol.png)
        if "svg" in self.formats:
            drawn = draw_svg(symbol.modules, module_mm=symbol.module_mm, title=order.identifier)
            files["svg"] = write_whole(stem.with_name(stem.name + ".svg"), drawn)
        return MadeLabel(order, symbol, files)


def file_stem(order: LabelOrder) -> str:
    """A file name without its ending: the serial, which makes it unique in its batch on any file system, and the name.

    Two identifiers may differ in case alone, or be one of the names that Windows keeps for itself.
    """
    return f"{order.serial:06d}_{quote(order.identifier, safe='+=,@()')[:_STEM_MAX]}"


def _make_all(
    orders: Sequence[LabelOrder], work: _Work, jobs: int, on_progress: Callable[[int, int], None] | None
) -> list[MadeLabel]:
    labels = []
    with contextlib.ExitStack() as stack:
        processes = min(jobs, len(orders) // _LABELS_PER_WORKER_MIN)
        if processes > 1:
            pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_begin_worker)
            stack.callback(pool.shutdown, cancel_futures=True)
            made = pool.map(work, orders, chunksize=_AT_ONCE)
        else:
            made = map(work, orders)
        try:
            for label in made:
                labels.append(label)
                if on_progress:
                    on_progress(len(labels), len(orders))
        except BrokenProcessPool:
            raise LabelError("a process ended by itself: run the same command again, with more memory free") from None
    return labels


def _begin_worker() -> None:
    """A worker leaves Ctrl-C to the process that started it, and ends with that, also after ``kill -9``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    atexit.register(os._exit, 0)  # the thread is still waiting, and zxing-cpp would complain of objects that it holds


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _write_together(folder: Path, labels: Sequence[MadeLabel], formats: Sequence[str], grid: Grid) -> dict[str, Path]:
    files = {}
    if "pdf" in formats:
        first, last = labels[0].order, labels[-1].order
        title = f"{first.product_id}: {first.identifier} to {last.identifier}"
        drawn = draw_sheet([(label.order.printed, label.symbol) for label in labels], grid=grid, title=title)
        files["pdf"] = write_whole(folder / SHEET_PDF, drawn)
    if "zpl" in formats:
        printed = (draw_zpl(label.order.identifier, label.order.printed, label.symbol, grid=grid) for label in labels)
        files["zpl"] = write_whole(folder / LABELS_ZPL, "".join(printed))
    return files
