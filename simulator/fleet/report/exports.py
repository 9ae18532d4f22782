"""A run for other programs, as JSON. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from simulator.fleet.metrics.ages import shown_ages
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.record import RunRecord
from simulator.fleet.report.figures import (
    MEASURES,
    OUTCOME_COUNTS,
    TABLE_PERCENTILES,
    OutcomeFigures,
    figures_by_outcome,
    percentile_label,
    percentile_times,
)
from simulator.fleet.report.formatting import finite


def summary_json(record: RunRecord) -> str:
    """The record with percentiles as numbers instead of histograms, for scripts; times in seconds."""
    document = asdict(record)
    for member, operations in (("operations", record.operations), ("ages", shown_ages(record.ages))):
        found = {(each.operation, each.outcome): _figures(each) for each in figures_by_outcome(operations)}
        document[member] = {
            name: {outcome: found[name, outcome] for outcome in classes} for name, classes in operations.items()
        }
    document["command_stages"] = {
        name: {"count": times.count, **_times(times)}
        for name, times in ((name, Histogram.decode(text)) for name, text in record.command_stages.items())
    }
    del document["health"]["send_lag"]
    return json.dumps(finite(document), indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"


def _figures(figures: OutcomeFigures) -> dict[str, Any]:
    counts = {name: count(figures) for name, count in OUTCOME_COUNTS.items()}
    return {**counts, **{f"{name}_s": _times(getattr(figures, name)) for name in MEASURES}}


def _times(histogram: Histogram) -> dict[str, float]:
    return dict(
        zip(map(percentile_label, TABLE_PERCENTILES), percentile_times(histogram, TABLE_PERCENTILES), strict=True)
    )
