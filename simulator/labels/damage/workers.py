"""The work on all cores, in processes of their own: what a decoder does to its process ends no run.

zbar and OpenCV are C and C++; an assertion in one of them ends the process that called it. Such a process is missed,
its work is done again decoder by decoder, and the one that ended it is written down as crashed.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import Final

from simulator.labels.damage.flip import Flip, Outcome
from simulator.labels.damage.kinds import KINDS
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.measuring import Finding, Sample, measure
from simulator.labels.damage.verdict import Verdict
from simulator.labels.errors import LabelError
from simulator.labels.symbol.decoders import Decoder

PanelMaker = Callable[[], tuple[Decoder, ...]]
"""Makes the panel inside a process: decoders hold handles that cannot be sent to one."""
_UNKNOWN: Final = Flip(Outcome.UNREAD, None, 0.0, monotonic=True)


@dataclass(frozen=True, slots=True)
class Task:
    """One label and one kind of damage.

    Attributes:
        label: the label as it should be.
        kind: the kind's name.
        severities: above 0, up to 1.
        seed: of all chance.
        flips: also search for the severity where each decoder loses the label.
        must_fail: also pick the mildest picture that nothing reads.
        decoders: names of the decoders to ask.
    """

    label: CleanLabel
    kind: str
    severities: tuple[float, ...]
    seed: int
    flips: bool
    must_fail: bool
    decoders: tuple[str, ...]


def run_here(
    tasks: Sequence[Task], panel: Sequence[Decoder], witnesses: Sequence[Decoder] = ()
) -> Iterator[tuple[int, Finding]]:
    """Each task's number and finding, worked on in this process, in order."""
    for number, task in enumerate(tasks):
        yield number, _run(task, [decoder for decoder in panel if decoder.name in task.decoders], witnesses)


def run_in_processes(
    tasks: Sequence[Task], *, jobs: int, make_panel: PanelMaker, make_witnesses: PanelMaker = tuple
) -> Iterator[tuple[int, Finding]]:
    """Each task's number and finding, in the order in which they are done.

    Args:
        tasks: the work.
        jobs: processes at the same time, at least 1.
        make_panel: a function of a module, called in each process.
        make_witnesses: the same for the witnesses.
    """
    lost = []
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start, (make_panel, make_witnesses)) as pool:
        futures: dict[Future[Finding], int] = {}
        for number, task in enumerate(tasks):
            try:
                futures[pool.submit(_work, task)] = number
            except BrokenProcessPool:
                lost.append(number)
        for future in as_completed(futures):
            number = futures.pop(future)  # with it goes the last hold on its pictures
            try:
                yield number, future.result()
            except BrokenProcessPool:
                lost.append(number)
    for number in sorted(lost):
        yield number, _run_alone(tasks[number], make_panel, make_witnesses)


def _run_alone(task: Task, make_panel: PanelMaker, make_witnesses: PanelMaker) -> Finding:
    """A task whose process may have been ended by a decoder, or only shared a pool with one that was."""
    whole = _try(task, make_panel, make_witnesses)
    if whole is not None:
        return whole
    task = replace(task, must_fail=False)  # what ended the process has not said that it reads nothing
    alone = {name: _try(replace(task, decoders=(name,)), make_panel) for name in task.decoders}
    sound = tuple(name for name, finding in alone.items() if finding)
    one = alone[sound[0]] if len(sound) == 1 else None
    finding = one or _try(replace(task, decoders=sound), make_panel)
    if finding is None:
        raise LabelError(
            "worker processes end before they work: guard the program's start with if __name__ == '__main__', "
            "or work without jobs"
        )
    return _with_crashed(finding, task.decoders, sound)


def _try(task: Task, make_panel: PanelMaker, make_witnesses: PanelMaker = tuple) -> Finding | None:
    """The finding of a task in a process of its own; None when the process did not outlive it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _start, (make_panel, make_witnesses)) as pool:
        try:
            return pool.submit(_work, task).result()
        except BrokenProcessPool:
            return None


def _with_crashed(finding: Finding, decoders: tuple[str, ...], sound: tuple[str, ...]) -> Finding:
    """The finding with a crashed verdict for each decoder that is not among the sound ones, and no label to fail."""

    def widened(sample: Sample) -> Sample:
        said = dict(zip(sound, sample.verdicts, strict=False))
        return replace(sample, verdicts=tuple(said.get(name, Verdict.CRASHED) for name in decoders))

    found = dict(zip(sound, finding.flips, strict=False))
    flips = tuple(found.get(name, _UNKNOWN) for name in decoders) if finding.flips else ()
    return replace(finding, samples=tuple(widened(sample) for sample in finding.samples), flips=flips, must_fail=None)


_panel: list[Decoder] = []
"""This process's decoders, made once by :func:`_start`."""
_witnesses: list[Decoder] = []
"""The same for those that only say whether a label fails."""


def _start(make_panel: PanelMaker, make_witnesses: PanelMaker) -> None:
    _panel[:] = make_panel()
    _witnesses[:] = make_witnesses()


def _work(task: Task) -> Finding:
    return _run(task, [decoder for decoder in _panel if decoder.name in task.decoders], _witnesses)


def _run(task: Task, panel: Sequence[Decoder], witnesses: Sequence[Decoder]) -> Finding:
    return measure(
        task.label,
        KINDS[task.kind],
        severities=task.severities,
        seed=task.seed,
        panel=panel,
        flips=task.flips,
        must_fail=task.must_fail,
        witnesses=witnesses,
    )
