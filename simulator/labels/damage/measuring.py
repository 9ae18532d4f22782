"""One label and one kind of damage: the pictures, what each decoder says, where it flips."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulator.labels.damage.chance import PortableRandom
from simulator.labels.damage.flip import Flip, Probes, find_flips
from simulator.labels.damage.kind import Kind
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import Pixels
from simulator.labels.damage.verdict import Verdicts, judge
from simulator.labels.symbol.decoders import Decoder


@dataclass(frozen=True, slots=True)
class Sample:
    """A damaged picture with what was measured on it.

    Attributes:
        severity: above 0, up to 1.
        measure: the same in the kind's unit.
        verdicts: of each decoder, in the panel's order.
        width: of the picture in pixels.
        height: the same.
        pixels_sha256: a name for the pixels, whatever file shows them.
    """

    severity: float
    measure: float
    verdicts: Verdicts
    width: int
    height: int
    pixels_sha256: str


@dataclass(frozen=True, slots=True)
class DamageFinding:
    """What one kind of damage does to one label.

    Attributes:
        label: the label's name.
        text: what it says.
        kind: the kind's name.
        samples: at the severities asked for, rising.
        flips: one for each decoder in the panel's order; empty when not searched for.
        pictures: severity and pixels of each sample; empty once they are written.
    """

    label: str
    text: str
    kind: str
    samples: tuple[Sample, ...]
    flips: tuple[Flip, ...]
    pictures: Mapping[float, Pixels]


def damage(label: CleanLabel, kind: Kind, severity: float, seed: int) -> Pixels:
    """A label's picture after damage: the same for the same arguments.

    Args:
        label: the label as it should be.
        kind: what happens to it.
        severity: 0 (nothing) to 1.
        seed: another one scratches elsewhere.
    """
    if severity <= 0:
        return label.pixels
    return kind.apply(label, severity, PortableRandom(seed, kind.name, label.text))


def measure(
    label: CleanLabel,
    kind: Kind,
    *,
    severities: Sequence[float],
    seed: int,
    panel: Sequence[Decoder],
    flips: bool,
) -> DamageFinding:
    """Damage a label at each severity and ask the panel about it.

    Args:
        label: the label as it should be.
        kind: what happens to it.
        severities: above 0, up to 1.
        seed: of all chance.
        panel: the decoders.
        flips: also search for the severity where each decoder loses the label.
    """
    probes = Probes(lambda severity: judge(damage(label, kind, severity, seed), label.text, panel))

    found = find_flips(probes, severities) if flips and panel else ()
    wanted = {severity: probes.at(severity) for severity in sorted(severities)}
    # Damaging anew is cheap and gives the same; keeping every picture of a search is neither.
    pictures = {severity: damage(label, kind, severity, seed) for severity in wanted}
    measured = {
        severity: Sample(severity, kind.measure(severity), verdicts, *_facts(pictures[severity]))
        for severity, verdicts in wanted.items()
    }
    return DamageFinding(
        label=label.name,
        text=label.text,
        kind=kind.name,
        samples=tuple(measured[severity] for severity in sorted(severities)),
        flips=found,
        pictures=pictures,
    )


def _facts(pixels: Pixels) -> tuple[int, int, str]:
    height, width = pixels.shape
    return width, height, hashlib.sha256(pixels.tobytes()).hexdigest()
