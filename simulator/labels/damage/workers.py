"""Measures labels in worker processes, so that a decoder that crashes or hangs ends no run.

zbar and OpenCV are C and C++: an assertion in one of them ends the process that called it, and an endless loop is ended
by the limit for one picture. The lost work is done again decoder by decoder, and each decoder that ends its process
again is written down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from simulator.labels.damage.flip import Flip, FlipOutcome
from simulator.labels.damage.kinds import KINDS
from simulator.labels.damage.label import CleanLabel, load_labels
from simulator.labels.damage.measuring import DamageFinding, Sample, measure
from simulator.labels.damage.verdict import PictureVerdict
from simulator.labels.errors import LabelError
from simulator.labels.processes import ProcessEnded, run_alone, run_ordered
from simulator.labels.symbol.decoders import Decoder

PanelMaker = Callable[[], tuple[Decoder, ...]]
"""Makes decoders inside a process: they hold handles that cannot be sent to one. A function of a module."""
_UNKNOWN: Final = Flip(FlipOutcome.UNREAD, None, 0.0, monotonic=True)


@dataclass(frozen=True, slots=True)
class Task:
    """One label and one kind of damage.

    Attributes:
        picture: of the label as it should be.
        kind: the kind's name.
        severities: above 0, up to 1.
        seed: of all chance.
        flips: also search for the severity where each decoder loses the label.
        must_fail: also pick the mildest picture that nothing reads.
        decoders: names of the panel's decoders to ask.
        extra: names of the decoders beside the panel to ask about what must fail.
    """

    picture: Path
    kind: str
    severities: tuple[float, ...]
    seed: int
    flips: bool
    must_fail: bool
    decoders: tuple[str, ...]
    extra: tuple[str, ...] = ()

    def run(self, panel: Sequence[Decoder], extra: Sequence[Decoder]) -> DamageFinding:
        """What these decoders say, as far as they are to be asked."""
        return measure(
            _label(self.picture),
            KINDS[self.kind],
            severities=self.severities,
            seed=self.seed,
            panel=[decoder for decoder in panel if decoder.name in self.decoders],
            flips=self.flips,
            must_fail=self.must_fail,
            extra=[decoder for decoder in extra if decoder.name in self.extra],
        )


@lru_cache(maxsize=1)
def _label(picture: Path) -> CleanLabel:
    """The label of a picture; all kinds of damage to one label come one after the other."""
    return load_labels([picture])[picture]


@dataclass(frozen=True, slots=True)
class Measuring:
    """The work of a process; see :class:`simulator.labels.processes.Work`.

    Attributes:
        make_panel: makes the panel.
        make_extra: makes the decoders that only say whether a label fails.
    """

    make_panel: PanelMaker
    make_extra: PanelMaker

    def start(self) -> Callable[[Task], DamageFinding]:
        """Make the decoders of this process."""
        panel, extra = self.make_panel(), self.make_extra()
        return lambda task: task.run(panel, extra)


def run_in_processes(tasks: Sequence[Task], work: Measuring, *, jobs: int, answer_s: float) -> Iterator[DamageFinding]:
    """Each task's finding, in order.

    Args:
        tasks: the work.
        work: makes the decoders.
        jobs: processes at the same time, at least 1.
        answer_s: how long a decoder may take over one picture.

    Raises:
        LabelError: processes end before they work.
    """

    def alone(task: Task, ended: ProcessEnded) -> DamageFinding:
        del ended  # it may have been another decoder's fault than the next try shows
        return _run_alone(task, work, answer_s)

    return run_ordered(work, ([task] for task in tasks), jobs, on_lost=alone, answer_s=answer_s)


def _run_alone(task: Task, work: Measuring, answer_s: float) -> DamageFinding:
    """A task whose process was ended by a decoder: each decoder alone, and what the others say."""

    def attempt(narrowed: Task) -> DamageFinding | ProcessEnded:
        try:
            return run_alone(work, narrowed, answer_s=answer_s)
        except ProcessEnded as ended:
            return ended

    panel_only = replace(task, must_fail=False, extra=())
    ends = {name: attempt(replace(panel_only, decoders=(name,))) for name in task.decoders}
    failed = {name: _verdict_of(end) for name, end in ends.items() if isinstance(end, ProcessEnded)}
    sound = tuple(name for name in task.decoders if name not in failed)
    finding = attempt(replace(panel_only, decoders=sound))
    if isinstance(finding, ProcessEnded):
        raise LabelError(
            "worker processes end before they work: guard the program's start with if __name__ == '__main__', "
            "or work without jobs"
        )
    if failed:  # what ended the process has not said that it reads nothing, so nothing must fail
        return _with_failed(finding, task.decoders, sound, failed)
    whole = attempt(task)
    if not isinstance(whole, ProcessEnded):
        return whole
    one_each = {name: attempt(replace(task, extra=(name,))) for name in task.extra}
    silent = tuple(name for name, end in one_each.items() if isinstance(end, ProcessEnded) or end.no_answer)
    return replace(finding, no_answer=silent or task.extra)


def _verdict_of(ended: ProcessEnded) -> PictureVerdict:
    return PictureVerdict.TIMED_OUT if ended.took_too_long else PictureVerdict.CRASHED


def _with_failed(
    finding: DamageFinding, decoders: tuple[str, ...], sound: tuple[str, ...], failed: dict[str, PictureVerdict]
) -> DamageFinding:
    """The finding of the sound decoders with the verdict of each that failed."""

    def widened(sample: Sample) -> Sample:
        said = dict(zip(sound, sample.verdicts, strict=False)) | failed
        return replace(sample, verdicts=tuple(said[name] for name in decoders))

    found = dict(zip(sound, finding.flips, strict=False))
    flips = tuple(found.get(name, _UNKNOWN) for name in decoders) if finding.flips else ()
    return replace(finding, samples=tuple(widened(sample) for sample in finding.samples), flips=flips)
