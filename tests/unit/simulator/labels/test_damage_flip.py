"""The search for the severity where a decoder loses a label, on decoders whose answer is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simulator.labels.damage.flip import WIDTH, FlipOutcome, Probes, find_flips
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
