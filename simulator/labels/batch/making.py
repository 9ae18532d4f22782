"""Make a batch of labels: encode, draw, prove, write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simulator.labels.batch import manifest
from simulator.labels.batch.folder import MANIFEST_CSV, SHEET, LabelFolder, file_stem
from simulator.labels.batch.manifest import MadeLabel
from simulator.labels.errors import LabelError
from simulator.labels.payload import DEFAULT_TEMPLATE, IdentifierTemplate, Payload, open_payload
from simulator.labels.printing.sheet import Grid, SheetLabel, draw_sheet, fit_grid
from simulator.labels.symbol.decoders import Decoder, panel
from simulator.labels.symbol.proving import PrintSize, prove
from simulator.labels.symbol.svg import draw_svg

FORMATS: Final = ("png", "svg", "pdf")
OnProgress = Callable[[int, int], None]
"""Called with labels done and labels in all."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A finished batch.

    Attributes:
        folder: where it is.
        labels: in the order of their serials.
        decoders: the panel that read each of them.
        sheet: the PDF, when asked for.
        manifest_csv: the table of labels.
        manifest_json: the same with all particulars.
    """

    folder: Path
    labels: tuple[MadeLabel, ...]
    decoders: tuple[str, ...]
    sheet: Path | None
    manifest_csv: Path
    manifest_json: Path

    @property
    def retaken(self) -> int:
        """Labels whose first candidate some decoder did not read, so that another was taken."""
        return sum(1 for label in self.labels if label.missed)


@dataclass(frozen=True, slots=True)
class _Job:
    """What all labels of a batch share, checked."""

    product_id: str
    size: PrintSize
    level: str
    formats: frozenset[str]
    grid: Grid | None
    decoders: tuple[Decoder, ...]


def make_labels(
    *,
    product_id: str,
    count: int,
    out: Path | str,
    template: str = DEFAULT_TEMPLATE,
    first_serial: int = 1,
    size_mm: float = 25.0,
    dpi: int = 300,
    level: str = "M",
    formats: Iterable[str] = FORMATS,
    paper: str = "a4",
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
        size_mm: the longest edge of a code, quiet zone counted.
        dpi: the printer's resolution; a module is a whole number of its dots.
        level: the lowest error correction level: L, M, Q or H.
        formats: any of ``png``, ``svg``, ``pdf`` (the sheet); the manifest is always written.
        paper: of the sheet: ``a4`` or ``letter``.
        profile: of the payload: a name that needs nothing else, or what ``open_payload`` gave.
        replace: overwrite another batch in the folder.
        decoders: the panel; by default the one of this machine.
        on_progress: told after each label.

    Raises:
        LabelError: bad argument, text too long for the size, unwritable folder: one line that names the fix.
        LabelsExist: the folder holds other labels and ``replace`` is false.
        UnreadableLabel: no candidate for a label was read by the whole panel.
    """
    job = _check(
        product_id=product_id,
        size=PrintSize(size_mm, dpi),
        level=level,
        formats=formats,
        paper=paper,
        decoders=decoders,
    )
    payload = open_payload(profile) if isinstance(profile, str) else profile
    texts = [
        (serial, identifier, payload.text(product_id, identifier))
        for serial, identifier in IdentifierTemplate(template).identifiers(first_serial, count)
    ]
    # The longest first: what cannot be printed is refused before anything is written.
    prove(max((text for _, _, text in texts), key=_size_bytes), size=job.size, level=level, panel=job.decoders)
    described = {
        "product_id": product_id,
        "count": count,
        "template": template,
        "first_serial": first_serial,
        **payload.described,
        "level": level,
        "size_mm": float(size_mm),
        "dpi": dpi,
        "formats": sorted(job.formats),
        "paper": paper,
    }
    folder = LabelFolder(Path(out), described, replace=replace)
    labels = []
    for index, entry in enumerate(texts):
        labels.append(_make_one(job, folder, index, entry))
        if on_progress:
            on_progress(index + 1, count)
    return _finish(job, folder, described, tuple(labels))


def _size_bytes(text: str) -> int:
    return len(text.encode())


def _check(
    *,
    product_id: str,
    size: PrintSize,
    level: str,
    formats: Iterable[str],
    paper: str,
    decoders: Sequence[Decoder] | None,
) -> _Job:
    wanted = frozenset(formats)
    if not wanted or wanted - set(FORMATS):
        unknown = ", ".join(sorted(wanted - set(FORMATS))) or "none"
        raise LabelError(f"formats: {unknown} asked for; give one or more of {', '.join(FORMATS)}")
    if not product_id:
        raise LabelError("the product id is empty: give --product-id, as POST /products answered it")
    grid = fit_grid(paper, size.size_mm) if "pdf" in wanted else None
    return _Job(product_id, size, level, wanted, grid, panel() if decoders is None else tuple(decoders))


def _make_one(job: _Job, folder: LabelFolder, index: int, entry: tuple[int, str, str]) -> MadeLabel:
    serial, identifier, text = entry
    symbol = prove(text, size=job.size, level=job.level, panel=job.decoders)
    stem = file_stem(identifier)
    svg = draw_svg(symbol.matrix, module_mm=symbol.module_mm, title=identifier) if "svg" in job.formats else None
    return MadeLabel(
        serial=serial,
        identifier=identifier,
        product_id=job.product_id,
        text=text,
        matrix=symbol.matrix,
        module_mm=symbol.module_mm,
        dots_per_module=symbol.dots_per_module,
        taken=symbol.taken,
        missed=symbol.missed,
        png=folder.write(f"{stem}.png", symbol.png) if "png" in job.formats else None,
        svg=folder.write(f"{stem}.svg", svg) if svg is not None else None,
        page=job.grid.cell(index)[0] + 1 if job.grid else None,
    )


def _finish(job: _Job, folder: LabelFolder, described: dict[str, Any], labels: tuple[MadeLabel, ...]) -> Batch:
    sheet = None
    if job.grid:
        drawn = [SheetLabel(label.identifier, label.product_id, label.matrix, label.module_mm) for label in labels]
        title = f"{job.product_id}: {labels[0].identifier} to {labels[-1].identifier}"
        sheet = folder.write(SHEET, draw_sheet(drawn, grid=job.grid, title=title))
    names = tuple(decoder.name for decoder in job.decoders)
    table = folder.write(MANIFEST_CSV, manifest.as_csv(names, labels))
    kept = {path.name for label in labels for path in (label.png, label.svg, sheet) if path}
    document = manifest.as_json(described, names, labels, sheet.name if sheet else None)
    return Batch(folder.path, labels, names, sheet, table, folder.finish(kept, document))
