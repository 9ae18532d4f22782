"""Damage labels: every kind at every severity, measured, written, with manifests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from simulator.labels.damage import documents
from simulator.labels.damage.contact import draw_contact
from simulator.labels.damage.documents import Run
from simulator.labels.damage.folder import DamageFolder
from simulator.labels.damage.kinds import KINDS
from simulator.labels.damage.label import load_labels
from simulator.labels.damage.measuring import DamageFinding
from simulator.labels.damage.workers import Measuring, Task, run_in_processes
from simulator.labels.errors import LabelError
from simulator.labels.symbol.decoders import ANSWER_S, Decoder, panel, title
from simulator.labels.symbol.extra_decoders import make_extra, missing_extra

SEVERITIES: Final = (0.2, 0.4, 0.6, 0.8, 1.0)
_CSV: Final = "manifest.csv"
_FLIPS: Final = "flips.csv"
OnProgress = Callable[[int, int], None]
"""Called with pieces of work done and in all; a piece is one label and one kind."""


@dataclass(frozen=True, slots=True)
class DamagedBatch:
    """The labels of a finished damage run.

    Attributes:
        folder: where it is.
        run: what was asked for.
        findings: one for each label and kind, by label, then in the order of the kinds.
        must_fail: the folder of labels that must not scan, when asked for.
        not_asked: how to have each further decoder that could have judged those.
    """

    folder: Path
    run: Run
    findings: tuple[DamageFinding, ...]
    must_fail: Path | None
    not_asked: tuple[str, ...] = ()


def damage_labels(
    labels: Sequence[Path | str],
    *,
    out: Path | str,
    kinds: Iterable[str] = tuple(KINDS),
    severities: Iterable[float] = SEVERITIES,
    seed: int = 1,
    flips: bool = True,
    must_fail: Path | str | None = None,
    jobs: int | None = None,
    decoders: Sequence[Decoder] | None = None,
    make_panel: Callable[[], tuple[Decoder, ...]] = panel,
    jsqr: Path | None = None,
    answer_s: float = ANSWER_S,
    on_progress: OnProgress | None = None,
) -> DamagedBatch:
    """Damage labels in every way asked for and write the pictures with what every decoder says about them.

    Equal arguments on equal versions of numpy and Pillow give equal pixels.

    Args:
        labels: PNG files of clean labels, or folders of them.
        out: the folder; made when missing. What an earlier run left in it is replaced.
        kinds: names out of :data:`KINDS`.
        severities: above 0, up to 1.
        seed: another one puts scratches, stains and noise elsewhere.
        flips: search for the severity where each decoder loses each label.
        must_fail: a folder for the mildest picture of each label and kind that nothing reads, patient looks included:
            neither the panel nor WeChat's detector, where it is installed, nor jsQR.
        jobs: processes at the same time; None works in this one, where a decoder that crashes takes the run with it and
            ``answer_s`` holds for jsQR alone.
        decoders: the panel, when the work is done in this process; by default what ``make_panel`` makes.
        make_panel: makes the panel; with ``jobs`` in each process, so it must be a function of a module.
        jsqr: with ``must_fail``, the folder whose ``node_modules`` holds jsQR.
        answer_s: how long a decoder may take over one picture. One that takes longer has the verdict ``timed_out``, and
            a picture over which it did is none that must fail.
        on_progress: called after each label and kind.

    Raises:
        LabelError: bad argument, a picture that is no clean label, a folder that cannot be written.
    """
    readers = tuple(make_panel() if decoders is None else decoders)
    run = _check(kinds, severities, seed, readers, jobs)
    extra = _extra(must_fail, jsqr, answer_s)
    if must_fail is not None:
        run = replace(run, judged_by=tuple(title(one) for one in (*readers, *extra)))
    clean = load_labels(labels)
    folder = DamageFolder(Path(out))
    failing = None if must_fail is None else DamageFolder(Path(must_fail), option="--must-fail")
    names = tuple(one.name for one in extra)
    tasks = [
        Task(picture, kind, run.severities, seed, flips, failing is not None, run.decoders, names)
        for picture in clean
        for kind in run.kinds
    ]
    if jobs is None:
        working: Iterable[DamageFinding] = (task.run(readers, extra) for task in tasks)
    else:
        work = Measuring(make_panel, tuple if must_fail is None else partial(make_extra, jsqr, answer_s))
        working = run_in_processes(tasks, work, jobs=jobs, answer_s=answer_s)
    pictures = _Pictures(run, folder, failing)
    for done, finding in enumerate(working, start=1):
        pictures.write(finding)
        if on_progress:
            on_progress(done, len(tasks))
    findings = tuple(pictures.findings)
    folder.write(_CSV, documents.pictures_csv(run, findings))
    folder.write(_FLIPS, documents.flips_csv(run, findings))
    folder.finish(documents.as_json(run, findings))
    if failing:
        failing.write(_CSV, documents.must_fail_csv(run, findings))
        failing.finish(documents.must_fail_json(run, findings))
    if failing is None:
        return DamagedBatch(folder.path, run, findings, None)
    return DamagedBatch(folder.path, run, findings, failing.path, missing_extra(extra))


def _extra(must_fail: Path | str | None, jsqr: Path | None, answer_s: float) -> tuple[Decoder, ...]:
    if must_fail is None:
        if jsqr is not None:
            raise LabelError("--jsqr judges what must fail: give --must-fail, too, or leave it out")
        return ()
    return make_extra(jsqr, answer_s)


class _Pictures:
    """Writes each finding's pictures as it comes, and a label's contact sheet once all its kinds are there.

    Args:
        run: what the findings share.
        folder: for the pictures.
        failing: for labels that must not scan.
    """

    def __init__(self, run: Run, folder: DamageFolder, failing: DamageFolder | None) -> None:
        self._run = run
        self._folder = folder
        self._failing = failing
        self.findings: list[DamageFinding] = []
        """Those that were written; of finished labels without their pictures."""

    def write(self, finding: DamageFinding) -> None:
        """Write what came of the next task."""
        for place, sample in enumerate(finding.samples, start=1):
            self._folder.write_picture(documents.sample_file(finding, place), finding.pictures[sample.severity])
        if self._failing and finding.must_fail:
            name = documents.must_fail_file(finding)
            self._failing.write_picture(name, finding.pictures[finding.must_fail.severity])
        self.findings.append(finding)
        kinds = len(self._run.kinds)
        if len(self.findings) % kinds == 0:
            of_label = self.findings[-kinds:]
            self._folder.write(f"contact/{finding.label}.png", draw_contact(self._run, of_label))
            # A thousand labels' pictures would not fit into memory.
            self.findings[-kinds:] = [replace(one, pictures={}) for one in of_label]


def _check(
    kinds: Iterable[str], severities: Iterable[float], seed: int, readers: Sequence[Decoder], jobs: int | None
) -> Run:
    wanted = set(kinds)
    if not wanted or wanted - set(KINDS):
        unknown = ", ".join(sorted(wanted - set(KINDS))) or "none"
        raise LabelError(f"kinds: {unknown} asked for; give one or more of {', '.join(KINDS)}")
    levels = tuple(sorted(set(severities)))
    if not levels or not all(0 < level <= 1 for level in levels):
        raise LabelError(
            f"severities: {', '.join(f'{level:g}' for level in levels) or 'none'}; give numbers above 0, up to 1"
        )
    if jobs is not None and jobs < 1:
        raise LabelError(f"jobs is {jobs}: give 1 or more")
    if not readers:
        raise LabelError("no decoder in the panel: nothing could be measured")
    names = tuple(decoder.name for decoder in readers)
    return Run(seed, levels, tuple(name for name in KINDS if name in wanted), names)
