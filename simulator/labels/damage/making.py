"""Damage labels: every kind at every severity, measured, written, with manifests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from simulator.labels.damage import documents
from simulator.labels.damage.documents import Run
from simulator.labels.damage.folder import DamageFolder
from simulator.labels.damage.kinds import KINDS
from simulator.labels.damage.label import CleanLabel, load_labels
from simulator.labels.damage.measuring import DamageFinding, measure
from simulator.labels.errors import LabelError
from simulator.labels.processes import run_ordered
from simulator.labels.symbol.decoders import Decoder, panel

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
    """

    folder: Path
    run: Run
    findings: tuple[DamageFinding, ...]


def damage_labels(
    labels: Sequence[Path | str],
    *,
    out: Path | str,
    kinds: Iterable[str] = tuple(KINDS),
    severities: Iterable[float] = SEVERITIES,
    seed: int = 1,
    flips: bool = True,
    jobs: int = 1,
    decoders: Sequence[Decoder] | None = None,
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
        jobs: processes at the same time.
        decoders: the panel (then ``jobs`` has to be 1); by default all of this machine.
        on_progress: called after each label and kind.

    Raises:
        LabelError: bad argument, a picture that is no clean label, a folder that cannot be written.
    """
    readers = panel() if decoders is None else tuple(decoders)
    if jobs < 1 or (jobs > 1 and decoders is not None):
        raise LabelError(f"jobs is {jobs}: give 1 or more; 1 with decoders of your own")
    run = _check(kinds, severities, seed, readers)
    clean = load_labels(labels)
    folder = DamageFolder(Path(out))
    tasks = [(picture, kind) for picture in clean for kind in run.kinds]
    measuring = _Measuring(run, flips, readers if jobs == 1 else None)
    findings: list[DamageFinding] = []
    with contextlib.closing(run_ordered(measuring.start, tasks, jobs)) as measured:
        for finding in measured:
            for place, sample in enumerate(finding.samples, start=1):
                folder.write_picture(documents.sample_file(finding, place), finding.pictures[sample.severity])
            findings.append(replace(finding, pictures={}))  # a thousand labels' pictures would not fit into memory
            if on_progress:
                on_progress(len(findings), len(tasks))
    folder.write(_CSV, documents.pictures_csv(run, findings))
    folder.write(_FLIPS, documents.flips_csv(run, findings))
    folder.finish(documents.as_json(run, findings))
    return DamagedBatch(folder.path, run, tuple(findings))


@dataclass(frozen=True, slots=True)
class _Measuring:
    """The work on one label and one kind; it may go to another process.

    Attributes:
        run: what all pictures share.
        flips: also search for the severity where each decoder loses the label.
        readers: the panel; None where a process has to load its own.
    """

    run: Run
    flips: bool
    readers: tuple[Decoder, ...] | None

    def start(self) -> Callable[[tuple[Path, str]], DamageFinding]:
        """The function that measures a picture's label under a kind of damage."""
        readers = panel() if self.readers is None else self.readers

        def work(task: tuple[Path, str]) -> DamageFinding:
            picture, kind = task
            label = _label(picture)
            return measure(
                label, KINDS[kind], severities=self.run.severities, seed=self.run.seed, panel=readers, flips=self.flips
            )

        return work


@lru_cache(maxsize=1)
def _label(picture: Path) -> CleanLabel:
    """The label of a picture; all kinds of damage to one label come one after the other."""
    return load_labels([picture])[picture]


def _check(kinds: Iterable[str], severities: Iterable[float], seed: int, readers: Sequence[Decoder]) -> Run:
    wanted = set(kinds)
    if not wanted or wanted - set(KINDS):
        unknown = ", ".join(sorted(wanted - set(KINDS))) or "none"
        raise LabelError(f"kinds: {unknown} asked for; give one or more of {', '.join(KINDS)}")
    levels = tuple(sorted(set(severities)))
    if not levels or not all(0 < level <= 1 for level in levels):
        raise LabelError(
            f"severities: {', '.join(f'{level:g}' for level in levels) or 'none'}; give numbers above 0, up to 1"
        )
    if not readers:
        raise LabelError("no decoder in the panel: nothing could be measured")
    names = tuple(decoder.name for decoder in readers)
    return Run(seed, levels, tuple(name for name in KINDS if name in wanted), names)
