"""``report.html``: a run on one page that loads nothing.

The page's own policy forbids it to load anything, and lets run only the scripts that are in this package (by their
SHA-256). Every value is escaped by Jinja2; data for plots travels as JSON that no parser of HTML can leave
(``tojson``).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from simulator.fleet.metrics.ages import shown_ages
from simulator.fleet.metrics.stages import without_stages
from simulator.fleet.record import RunRecord
from simulator.fleet.report.figures import PERCENTILES, by_operation, percentile_name, percentiles, run_figures
from simulator.fleet.report.formatting import (
    DASH,
    OUTCOME_WORDS,
    clock_text,
    count_text,
    percent_text,
    plural,
    state_word,
    time_text,
)
from simulator.fleet.report.page.content import content_of
from simulator.fleet.report.page.plots import plots_of
from simulator.fleet.report.summary import WRONGS, observed_text
from simulator.fleet.report.timeline import Timeline

_SHARED: Final = "simulator.report_parts"
_SCRIPTS: Final = ((_SHARED, "uPlot.iife.min.js"), (__name__, "fleet.js"))
_STYLES: Final = ((_SHARED, "uPlot.min.css"), (_SHARED, "report.css"), (__name__, "fleet.css"))


def fleet_page(record: RunRecord, timeline: Timeline, beside: Sequence[tuple[str, str]] = ()) -> str:
    """The whole page as text, to be written as UTF-8. Pure.

    Args:
        record: the run.
        timeline: of its seconds.
        beside: names of files beside the page, and what they are.
    """
    figures = run_figures(record)
    scripts = [_static(*place) for place in _SCRIPTS]
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {hashes}; base-uri 'none'"
    page = (
        _environment()
        .get_template("fleet.html.j2")
        .render(
            page_policy=policy,
            # The packages' own files, not anybody's input: the only places where nothing is escaped.
            page_scripts=[Markup(script) for script in scripts],  # noqa: S704
            page_styles=[Markup(_static(*place)) for place in _STYLES],  # noqa: S704
            record=record,
            figures=figures,
            content=content_of(record, figures, timeline),
            plots=plots_of(record, figures, timeline),
            phases=[
                (span, by_operation({**shown_ages(operations), **without_stages(operations)}))
                for span, operations in timeline.phases
            ],
            width_s=timeline.width_s,
            beside=beside,
        )
    )
    return page.lstrip()


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__name__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "clock": clock_text,
        "count": count_text,
        "share": percent_text,
        "time": time_text,
        "times": percentiles,
        "plural": plural,
        "state": state_word,
        "observed": observed_text,
    }
    names = [percentile_name(percent) for percent in PERCENTILES]
    environment.globals |= {"DASH": DASH, "OUTCOME_WORDS": OUTCOME_WORDS, "WRONGS": WRONGS, "percentile_names": names}
    return environment


@cache
def _static(package: str, name: str) -> str:
    text = (files(package) / "static" / name).read_text(encoding="utf-8")
    if "</script" in text.lower() or "</style" in text.lower():
        raise ValueError(f"{package}: static/{name} would end its own element")
    return text


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
