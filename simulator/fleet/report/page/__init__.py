"""``report.html``: a run on one page that loads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from simulator.fleet.record import RunRecord
from simulator.fleet.report.figures import run_figures
from simulator.fleet.report.page.content import content_of, phase_rows
from simulator.fleet.report.page.plots import plots_of
from simulator.fleet.report.timeline import PhaseFigures, Slice
from simulator.report_parts.page import PageAssets, render_page

_FAMILY: Final = "simulator.report_parts"
_ASSETS: Final = PageAssets(
    __name__,
    scripts=((_FAMILY, "uPlot.iife.min.js"), (__name__, "fleet.js")),
    styles=((_FAMILY, "uPlot.min.css"), (_FAMILY, "report.css"), (__name__, "fleet.css")),
)


def fleet_page(
    record: RunRecord,
    slices: Iterable[Slice],
    width_s: int,
    files: tuple[tuple[str, str], ...] = (),
    phases: Sequence[PhaseFigures] = (),
) -> str:
    """The whole page as text, to be written as UTF-8. Pure.

    Args:
        record: the run.
        slices: its time, see :mod:`simulator.fleet.report.timeline`.
        width_s: of a slice.
        files: names of files beside the page, and what they are.
        phases: what was measured in each of them.
    """
    shown, figures = tuple(slices), run_figures(record)
    return render_page(
        "fleet.html.j2",
        wardrobe=_ASSETS,
        record=record,
        content=content_of(record, figures, shown, width_s),
        plots=plots_of(record, figures, shown, width_s),
        files=files,
        phases=phase_rows(phases),
    )
