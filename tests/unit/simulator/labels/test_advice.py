"""What an error message advises is accepted when it is followed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.labels.batch.making import make_labels
from simulator.labels.errors import LabelError
from simulator.labels.printing.grid import grid_from
from simulator.labels.printing.options import PrintOptions
from simulator.labels.symbol.proving import PRINTER_RESOLUTIONS

GRID = grid_from({"columns": 3, "rows": 7, "label_width_mm": 63.5, "label_height_mm": 38.1}, "own")
ADVICE = re.compile(r"--(size-mm|dpi) ([0-9.]+)")


def advice_of(folder, **arguments):
    """What the refusal of a batch advises: the arguments to change; none when it is not refused."""
    message = ""
    try:
        make_labels(out=folder / "refused", replace=True, **arguments)
    except LabelError as refusal:
        message = str(refusal)
    found = ADVICE.findall(message)
    no_size = ("shorten the product id or the identifier", "a larger label, or shorter identifiers and names")
    assert bool(found) == bool(message) or message.endswith(no_size)
    return [{name.replace("-", "_"): int(value) if name == "dpi" else float(value)} for name, value in found]


@given(
    length=st.integers(1, 300),
    size_mm=st.floats(1.0, 9.0),
    dpi=st.sampled_from([203, 300, 600]),
    formats=st.sampled_from([("png",), ("png", "pdf"), ("png", "zpl")]),
)
@settings(max_examples=15)
def test_a_size_or_a_resolution_that_would_fit_does(tmp_path_factory, length, size_mm, dpi, formats):
    folder = tmp_path_factory.mktemp("advice")
    wanted = {"product_id": "p" * length, "formats": formats, "size_mm": size_mm, "dpi": dpi}
    for one in advice_of(folder, **wanted):
        assert len(make_labels(out=folder / "made", replace=True, **{**wanted, **one}).labels) == 1
        assert one.get("dpi", 203) in PRINTER_RESOLUTIONS


@pytest.mark.parametrize(
    "arguments",
    [
        {"size_mm": 900, "formats": ("pdf",)},
        {"size_mm": 60, "formats": ("pdf",), "printing": PrintOptions(grid=GRID)},
        {"size_mm": 60, "formats": ("zpl",), "printing": PrintOptions(label_mm=(80, 25))},
    ],
)
def test_the_largest_size_that_a_place_takes_is_taken(tmp_path, arguments):
    wanted = {"product_id": "p-1", **arguments}
    (advised,) = advice_of(tmp_path, **wanted)
    assert make_labels(out=tmp_path / "made", **{**wanted, **advised}).labels
