"""The search for the severity where a decoder loses a label, on decoders whose answer is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.labels.damage.flip import WIDTH, FlipOutcome, Probes, find_flips, must_not_scan
from simulator.labels.damage.verdict import PictureVerdict


def _probes(*legible):
    """A panel whose decoders read where their function says so."""
    asked = []

    def measure(severity):
        asked.append(severity)
        return tuple(PictureVerdict.READ if reads(severity) else PictureVerdict.NOT_FOUND for reads in legible)

    return Probes(measure), asked


@given(st.lists(st.floats(0.001, 0.999), min_size=1, max_size=3))
def test_the_bracket_holds_the_true_severity_and_is_narrow(edges):
    probes, asked = _probes(*(lambda severity, edge=edge: severity < edge for edge in edges))
    for flip, edge in zip(find_flips(probes), edges, strict=True):
        assert flip.outcome is FlipOutcome.FLIPS
        assert flip.monotonic
        assert flip.last_legible < edge <= flip.first_lost
        assert flip.first_lost - flip.last_legible <= WIDTH
    assert len(asked) == len(set(asked)) <= 11 + 4 * len(edges)


def test_a_decoder_that_always_reads_never_flips():
    (flip,) = find_flips(_probes(lambda severity: True)[0])
    assert (flip.outcome, flip.first_lost, flip.last_legible) == (FlipOutcome.NEVER, None, 1.0)


def test_a_decoder_that_does_not_read_the_clean_label_is_said_to():
    (flip,) = find_flips(_probes(lambda severity: 0.35 < severity < 0.65)[0])
    assert (flip.outcome, flip.last_legible, flip.first_lost, flip.monotonic) == (FlipOutcome.UNREAD, None, 0.0, False)


def test_a_decoder_that_reads_again_is_not_monotonic_and_its_first_loss_counts():
    (flip,) = find_flips(_probes(lambda severity: severity < 0.33 or 0.58 < severity < 0.71)[0])
    assert flip.outcome is FlipOutcome.FLIPS
    assert not flip.monotonic
    assert flip.last_legible < 0.33 <= flip.first_lost


def test_severities_asked_for_are_tried_too():
    probes, _ = _probes(lambda severity: not 0.44 < severity < 0.46)
    (flip,) = find_flips(probes, [0.45])
    assert flip.last_legible <= 0.44 < flip.first_lost <= 0.45


@pytest.mark.parametrize(
    ("said", "mildest"),
    [
        ({0.2: "r", 0.4: "n", 0.6: "n"}, 0.4),
        ({0.2: "n", 0.4: "r", 0.6: "n"}, 0.6),
        ({0.2: "n", 0.4: "n", 0.6: "r"}, None),
        ({0.2: "n", 0.4: "m", 0.6: "n"}, 0.6),
        ({0.2: "s"}, None),
        ({0.2: "c", 0.4: "c"}, None),
        ({0.2: ""}, None),
        ({}, None),
    ],
)
def test_what_must_not_scan_is_found_by_no_decoder_from_there_on(said, mildest):
    verdicts = {
        "r": PictureVerdict.READ,
        "n": PictureVerdict.NOT_FOUND,
        "m": PictureVerdict.MISREAD,
        "s": PictureVerdict.SEVERAL,
        "c": PictureVerdict.CRASHED,
    }
    assert must_not_scan({at: tuple(verdicts[one] for one in word) for at, word in said.items()}) == mildest


def test_one_decoder_that_still_reads_keeps_a_label_from_the_must_fail_folder():
    said = {
        0.5: (PictureVerdict.NOT_FOUND, PictureVerdict.READ),
        0.7: (PictureVerdict.NOT_FOUND, PictureVerdict.NOT_FOUND),
    }
    assert must_not_scan(said) == 0.7
