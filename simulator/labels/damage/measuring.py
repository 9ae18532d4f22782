"""One label and one kind of damage: the pictures, what each decoder says, where it flips."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from simulator.labels.damage.chance import PortableRandom
from simulator.labels.damage.flip import Flip, Probes, find_flips, must_not_scan
from simulator.labels.damage.kind import Kind
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import Pixels
from simulator.labels.damage.verdict import Verdicts, judge, to_image
from simulator.labels.errors import LabelError
from simulator.labels.symbol.decoders import Decoder, GrayImage, Zxing, ask
from simulator.labels.verify.finding import CodeSearch


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
        must_fail: the mildest picture that nothing reads, nor any worse one that was tried; None when there is none,
            or when it was not asked for.
        pictures: severity and pixels of each sample and of ``must_fail``; empty once they are written.
        no_answer: decoders that failed at a picture that nothing else read, or took too long over it. They have not
            said that they do not read it, so it is no ``must_fail``.
    """

    label: str
    text: str
    kind: str
    samples: tuple[Sample, ...]
    flips: tuple[Flip, ...]
    must_fail: Sample | None
    pictures: Mapping[float, Pixels]
    no_answer: tuple[str, ...] = ()


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
    must_fail: bool,
    extra: Sequence[Decoder] = (),
) -> DamageFinding:
    """Damage a label at each severity and ask the panel about it.

    Args:
        label: the label as it should be.
        kind: what happens to it.
        severities: above 0, up to 1.
        seed: of all chance.
        panel: the decoders.
        flips: also search for the severity where each decoder loses the label.
        must_fail: also pick the mildest picture that nothing reads.
        extra: decoders that must not read that one, either.
    """
    probes = Probes(lambda severity: judge(damage(label, kind, severity, seed), label.text, panel))

    found = find_flips(probes, severities) if flips and panel else ()
    wanted = {severity: probes.at(severity) for severity in sorted(severities)}
    mildest = must_not_scan(probes.all()) if must_fail else None
    # zxing looks in every search, and its failures end the search.
    noting = [_NotingFailure(one) for one in (*extra, *panel) if not isinstance(one, Zxing)]
    if mildest:
        pictures_of = partial(damage, label, kind, seed=seed)
        mildest = _first_unreadable_thorough([one for one in probes.all() if one >= mildest], pictures_of, noting)
    if mildest:
        wanted[mildest] = probes.at(mildest)
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
        must_fail=measured[mildest] if mildest else None,
        pictures=pictures,
        no_answer=tuple(one.name for one in noting if one.failure),
    )


class _NotingFailure:
    """A decoder that keeps its failure, which the search for codes ignores.

    Raises, when it reads:
        LabelError: its process is gone, which would be so at the next picture, too.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.name = decoder.name
        self.has_own_limit = getattr(decoder, "has_own_limit", False)
        self.failure: Exception | None = None

    def read(self, image: GrayImage) -> tuple[bytes, ...]:
        try:
            return self._decoder.read(image)
        except Exception as failure:
            self.failure = failure
            raise


def _first_unreadable_thorough(
    severities: Sequence[float],
    picture: Callable[[float], Pixels],
    decoders: Sequence[_NotingFailure],
) -> float | None:
    """The mildest of rising severities from which on nobody reads, with the patient looks of 'labels verify', either.

    Half the size or smoothed, a picture often reads that does not read as it is, and scanner apps do that. A decoder
    that fails ends the search as one that reads does: it has not said that it does not read.
    """
    mildest = None
    for severity in reversed(severities):
        is_read = _is_read(picture(severity), decoders)
        for one in decoders:
            if isinstance(one.failure, LabelError):  # not the picture's fault: it would fail at the next one, too
                raise one.failure
        if is_read or any(one.failure for one in decoders):
            break
        mildest = severity
    return mildest


def _is_read(pixels: Pixels, decoders: Sequence[_NotingFailure]) -> bool:
    image = to_image(pixels)
    for one in decoders:  # most of what they read they read at once
        with contextlib.suppress(Exception):  # it is kept
            if ask(one, image):
                return True
    if any(one.failure for one in decoders):
        return False
    search = CodeSearch(pixels, decoders)
    search.look()
    search.search_thoroughly(lambda: bool(search.found) or any(one.failure for one in decoders))
    return bool(search.found)


def _facts(pixels: Pixels) -> tuple[int, int, str]:
    height, width = pixels.shape
    return width, height, hashlib.sha256(pixels.tobytes()).hexdigest()
