"""``report.html``: a run on one page that loads nothing.

The page's own policy forbids it to load anything, and lets run only the scripts that are in this package (by their
SHA-256). Every value is escaped by Jinja2; data for plots is JSON that cannot end its own element (``tojson``).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from simulator.fleet.metrics.ages import AGE_OPERATIONS, requests_of, stages_of
from simulator.fleet.outcomes import HELD
from simulator.fleet.record import RunRecord
from simulator.fleet.report import figures, formatting, summary
from simulator.fleet.report.figures import FigureSet, Timeline, by_outcome, run_figures
from simulator.fleet.report.page.plots import plots_of

_UPLOT: Final = "simulator.report_parts"
_SCRIPTS: Final = ((_UPLOT, "uPlot.iife.min.js"), (__name__, "fleet.js"))
_STYLES: Final = ((_UPLOT, "uPlot.min.css"), (__name__, "fleet.css"))


def fleet_page(record: RunRecord, timeline: Timeline, beside: Sequence[tuple[str, str]] = ()) -> str:
    """The whole page as text, to be written as UTF-8. Pure.

    Args:
        record: the run.
        timeline: of its seconds.
        beside: names of files beside the page, and what they are.
    """
    found = run_figures(record)
    scripts = [_static(*place) for place in _SCRIPTS]
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii") for script in scripts]
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    page = _environment().get_template("fleet.html.j2").render(
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {hashes}; base-uri 'none'",
        # The packages' own files, never input: the only places where nothing is escaped.
        scripts=[Markup(script) for script in scripts],  # noqa: S704
        styles=[Markup(_static(*place)) for place in _STYLES],  # noqa: S704
        record=record,
        found=found,
        plots=plots_of(record, found, timeline),
        timeline=timeline,
        phases=[(span, FigureSet.of(operations, 0.0)) for span, operations in timeline.phases],
        outcomes=[*by_outcome(requests_of(record.operations))],
        stages=stages_of(record.operations),
        beside=beside,
    )  # fmt: skip
    return page.lstrip()


@cache
def _environment() -> Environment:
    """Templates know everything that makes words of figures: ``{{ figures.errors_of(record) }}``."""
    environment = Environment(
        loader=PackageLoader(__name__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "clock": formatting.clock_text,
        "count": formatting.count_text,
        "share": formatting.percent_text,
        "time": formatting.time_text,
        "plural": formatting.plural,
        "times": figures.percentiles,
        "instant": _instant,
        "json": lambda value: json.dumps(value, indent=1, ensure_ascii=False, default=str),
    }
    environment.globals |= {
        "figures": figures, "formatting": formatting, "summary": summary, "AGES": AGE_OPERATIONS, "HELD": HELD,
    }  # fmt: skip
    return environment


@cache
def _static(package: str, name: str) -> str:
    text = (files(package) / "static" / name).read_text(encoding="utf-8")
    if "</script" in text.lower() or "</style" in text.lower():
        raise ValueError(f"{package}: static/{name} would end its own element")
    return text


def _instant(text: str) -> str:
    """An instant of the record to the second, in words that may stand on two lines."""
    day, _, clock = text.partition("T")
    return f"{day} {clock[:8]} UTC" if clock.endswith("Z") else text
