"""What comes from outside may be anything: a parser raises its own errors and nothing else, and ends in time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fuzz.targets import MOST_BYTES, TARGETS, Target

CORPUS = Path(__file__).with_name("corpus")
ALL = sorted(TARGETS.values(), key=lambda each: each.name)
# Processor time of one input; the slowest of them opens a database.
MOST_S = 4.0
# What makes a careless pattern or loop go over the same text again and again.
REPEATED = [
    b"a",
    b" ",
    b"\n",
    b"0",
    b"<",
    b'"',
    b"[",
    b"{",
    b",",
    b";",
    b"=",
    b"%",
    b"\\",
    b"a=b;",
    b"a ,",
    b'"a":',
    b"- ",
]


def name_of(each: Target) -> str:
    return each.name


def run(each: Target, raw: bytes) -> bool:
    begun_s = time.process_time()
    taken = each.run(raw)
    assert time.process_time() - begun_s < MOST_S, "it took too long"
    return taken


@pytest.mark.parametrize("each", ALL, ids=name_of)
@settings(max_examples=60)
@given(data=st.data())
def test_anything_at_all(each, data):
    run(
        each,
        data.draw(st.binary(max_size=400) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))),
    )


@st.composite
def changed(draw: st.DrawFn, examples: tuple[bytes, ...]) -> bytes:
    """A good input with some bytes changed, taken out, put in or repeated."""
    raw = bytearray(draw(st.sampled_from(examples)))
    for _ in range(draw(st.integers(1, 4))):
        start, end = sorted(draw(st.tuples(st.integers(0, len(raw)), st.integers(0, len(raw)))))
        match draw(st.sampled_from(["put", "cut", "repeat", "flip"])):
            case "put":
                raw[start:start] = draw(st.sampled_from(PIECES) | st.binary(max_size=8))
            case "cut":
                del raw[start:end]
            case "repeat":
                raw[start:start] = raw[start:end] * draw(st.integers(1, 40))
            case _ if start < len(raw):
                raw[start] ^= 1 << draw(st.integers(0, 7))
    return bytes(raw)


PIECES = [
    b"\xb2", b"\xef\xbc\x91", b"\0", b"\xff", b"1e999", b"-0", b"9" * 400, b"9" * 5000, b"NaN", b"Infinity", b"null",
    b"\\ud800", b"\xed\xa0\x80", b"[" * 300, b'{"a":' * 1200, b"\r\n", b"&a *a", b"%00", b"%ff", b"../", b"\xc2\x85",
]  # fmt: skip


@pytest.mark.parametrize("each", ALL, ids=name_of)
@settings(max_examples=60)
@given(data=st.data())
def test_a_good_input_that_was_changed(each, data):
    run(each, data.draw(changed(each.examples)))


@pytest.mark.parametrize("each", ALL, ids=name_of)
def test_every_example_is_one_that_the_parser_takes_or_refuses_by_its_own_error(each):
    assert each.examples
    for raw in each.examples:
        run(each, raw)


@pytest.mark.parametrize("each", ALL, ids=name_of)
def test_something_long_ends_in_time(each):
    for piece in REPEATED:
        raw = piece * (MOST_BYTES // len(piece))
        run(each, raw)
        for example in each.examples[:1]:
            run(each, example[: len(example) // 2] + raw)


def corpus() -> list[Path]:
    return sorted(path for path in CORPUS.glob("*/*") if path.is_file())


@pytest.mark.parametrize("path", corpus(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_was_found_once_stays_mended(path):
    """``corpus/TARGET/NAME``: small inputs made by hand, and those that fuzzing found, cut down."""
    run(TARGETS[path.parent.name.replace("_", " ")], path.read_bytes())
