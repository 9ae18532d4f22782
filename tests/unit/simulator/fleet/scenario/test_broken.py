"""Whatever bytes a scenario file holds: it is read, or every fault has its line; nothing else ever comes out."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import ConfigurationError
from simulator.fleet.scenario.reading import parse_scenario

LINE = "line 1, column 1: read without a fault"
STARTERS = sorted((Path(__file__).resolve().parents[5] / "configs" / "scenarios").glob("*.yaml"))
WORDS = st.sampled_from(
    ["kind", "kind: storm", "- ", ": ", "{", "}", "[", "]", "30 s", "*a", "&a ", "!!int ", "null", "1e999", "'", "\t",
     "duration_s: 5m", "share: 2", "devices: -1", "until: x", "<<: ", "? ", "| ", "% ", "0x1", "\x00", "é", "\ud7ff"]
)  # fmt: skip


def only_faults_with_lines(raw: bytes) -> None:
    found = [LINE]
    try:
        parse_scenario(raw, Path("/nowhere"))
    except ConfigurationError as error:
        found = error.faults
    assert found
    for fault in found:
        assert re.match(r"line [1-9]\d*, column [1-9]\d*: ", fault), fault
        assert "\n" not in fault


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(STARTERS), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 20), WORDS), max_size=4))
def test_a_scenario_with_anything_written_over_it(path, edits):
    text = path.read_text(encoding="utf-8")
    for place, length, word in edits:
        at = int(place * len(text))
        text = text[:at] + word + text[at + length :]
    only_faults_with_lines(text.encode("utf-8", "surrogatepass"))


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(raw):
    only_faults_with_lines(raw)
