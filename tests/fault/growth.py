"""Whether processes grow: samples of their memory, open files and threads over hours, and the judgement of them.

Compared are two medians: around minute ten, when everything has been used once, and of the last two minutes. Memory is
PSS out of ``/proc/PID/smaps_rollup`` with what was swapped out; the bar is 5 %, and not
less than 256 KiB. Two figures beside it keep other processes of the machine out of the verdict, since PSS divides a
file's pages among all that have mapped it:

- *own*: the anonymous memory. It may not grow by more than the bar even if PSS stays, because others share more.
- *resident*: all pages, shared or not. PSS that grows while neither own nor resident memory does has lost sharers:
  other programs ended. That is noted and is no fault.

Open files and threads come and go with connections: the median at the end may not be above the highest count that was
seen from minute five to minute fifteen.
"""

from __future__ import annotations

import csv
import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Final

BAR: Final = 0.05
_BASE_AT_S: Final = 600.0
_BASE_HALF_S: Final = 60.0
_END_S: Final = 120.0
# Of a process of 2 MB, such as the broker, 5 % is less than an allocator takes at once.
_STEP_KIB: Final = 256


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at one process.

    Attributes:
        process: its name in tables.
        at_s: since the beginning of the run.
        pss_kib, own_kib, resident_kib: see the module; KiB, the first two with swapped pages.
        descriptors, threads: how many are open and how many run.
        cpu_s: used since its start, with children that have ended.
    """

    process: str
    at_s: float
    pss_kib: int
    own_kib: int
    resident_kib: int
    descriptors: int
    threads: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Spans:
    """What is compared, seconds since the beginning.

    Attributes:
        base, end: when the medians are taken.
        counts: when the highest counts of open files and threads are taken.
    """

    base: tuple[float, float]
    end: tuple[float, float]
    counts: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is said of one process.

    Attributes:
        base_kib, end_kib, max_kib: of PSS.
        descriptors, threads: highest in the span for counts, median at the end.
        growth: a sentence for each figure that grew; it counts only where the run was long enough.
        ended: a sentence when the process was not there the whole time.
        note: something seen that is no fault.
    """

    process: str
    base_kib: float = 0.0
    end_kib: float = 0.0
    max_kib: float = 0.0
    descriptors: tuple[int, float] = (0, 0)
    threads: tuple[int, float] = (0, 0)
    growth: tuple[str, ...] = ()
    ended: str = ""
    note: str = ""

    @property
    def change(self) -> float:
        """Of PSS, as a part of the base."""
        return self.end_kib / self.base_kib - 1 if self.base_kib else 0.0


def look_at(process: str, pid: int, at_s: float) -> Sample | None:
    """A sample of a process that runs; None when it has ended."""
    folder = Path(f"/proc/{pid}")
    try:
        sizes = _sizes((folder / "smaps_rollup").read_text())
        descriptors = sum(1 for _ in (folder / "fd").iterdir())
        stat = (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    if not sizes.get("Rss"):  # a zombie has no memory
        return None
    swapped = sizes.get("SwapPss", 0)
    return Sample(
        process,
        at_s,
        pss_kib=sizes["Pss"] + swapped,
        own_kib=sizes["Anonymous"] + swapped,
        resident_kib=sizes["Rss"] + swapped,
        descriptors=descriptors,
        threads=int(stat[17]),
        cpu_s=sum(map(int, stat[11:15])) / os.sysconf("SC_CLK_TCK"),
    )


def _sizes(rollup: str) -> dict[str, int]:
    words = (line.split() for line in rollup.splitlines()[1:])
    return {each[0].rstrip(":"): int(each[1]) for each in words if len(each) == 3}  # NAME: SIZE kB


def spans_of(duration_s: float) -> Spans:
    """Minute ten and the last two minutes; in a short run the end of its first third and its last sixth."""
    middle, half = min(_BASE_AT_S, duration_s / 3), min(_BASE_HALF_S, duration_s / 12)
    end_s = min(_END_S, duration_s / 6)
    return Spans((middle - half, middle + half), (duration_s - end_s, duration_s), (middle * 0.5, middle * 1.5))


def judge(samples: Iterable[Sample], spans: Spans, bar: float = BAR) -> list[Finding]:
    """A finding for each process, in the order of their first samples.

    Args:
        samples: of all processes, in any order.
        spans: what is compared.
        bar: the part by which memory may grow.
    """
    by_process: dict[str, list[Sample]] = {}
    for sample in samples:
        by_process.setdefault(sample.process, []).append(sample)
    last_s = max((each.at_s for found in by_process.values() for each in found), default=0.0)
    return [_judge_one(process, found, spans, bar, last_s) for process, found in by_process.items()]


def _judge_one(process: str, samples: Sequence[Sample], spans: Spans, bar: float, last_s: float) -> Finding:
    base, end, counted = (
        [each for each in samples if begin_s <= each.at_s <= end_s]
        for begin_s, end_s in (spans.base, spans.end, spans.counts)
    )
    seen_s = max(each.at_s for each in samples)
    if not base or not end or seen_s < last_s:
        return Finding(process, ended=f"{process} was not there the whole time: last seen after {seen_s:.0f} s")
    medians = _Medians(base, end)
    before, after = medians(lambda each: each.pss_kib)
    own_before, own_after = medians(lambda each: each.own_kib)
    resident_before, resident_after = medians(lambda each: each.resident_kib)
    allowed = max(bar * before, _STEP_KIB)
    own_grew = own_after - own_before > allowed
    pss_grew = after - before > allowed
    resident_grew = resident_after > resident_before * (1 + bar)
    growth: list[str] = []
    note = ""
    if own_grew or (pss_grew and resident_grew):
        own = f"anonymous from {own_before / 1024:.1f} to {own_after / 1024:.1f} MiB"
        growth.append(f"{process}: memory grew, PSS from {before / 1024:.1f} to {after / 1024:.1f} MiB, {own}")
    elif pss_grew:
        note = "others share less with it"
    elif after < before * (1 - bar):
        note = "smaller"
    counts = {}
    for name, count in _COUNTS.items():
        highest, at_end = max(map(count, counted)), statistics.median(map(count, end))
        counts[name] = (highest, at_end)
        if at_end > highest:
            growth.append(f"{process}: {name} were {highest} at the most, and are {at_end:g} at the end")
    return Finding(
        process,
        base_kib=before,
        end_kib=after,
        max_kib=max(each.pss_kib for each in samples),
        descriptors=counts["open files"],
        threads=counts["threads"],
        growth=tuple(growth),
        note=note,
    )


_COUNTS: Final[Mapping[str, Callable[[Sample], int]]] = {
    "open files": lambda each: each.descriptors,
    "threads": lambda each: each.threads,
}


@dataclass(frozen=True, slots=True)
class _Medians:
    base: Sequence[Sample]
    end: Sequence[Sample]

    def __call__(self, figure: Callable[[Sample], int]) -> tuple[float, float]:
        return statistics.median(map(figure, self.base)), statistics.median(map(figure, self.end))


def table_of(findings: Iterable[Finding], spans: Spans) -> str:
    """One line for each process, for a person."""
    lines = [
        "base: from {:.1f} to {:.1f} min; ".format(*(each / 60 for each in spans.base))
        + "end: from {:.1f} to {:.1f} min".format(*(each / 60 for each in spans.end)),
        f"{'process':24} {'base':>8} {'end':>8} {'change':>8} {'max':>8} {'open files':>11} {'threads':>9}",
        f"{'':24} {'MiB':>8} {'MiB':>8} {'':>8} {'MiB':>8} {'':>11} {'':>9}",
    ]
    for found in findings:
        sizes = (found.base_kib / 1024, found.end_kib / 1024, found.max_kib / 1024)
        files, threads = (f"{first} → {end:g}" for first, end in (found.descriptors, found.threads))
        word = "ENDED" if found.ended else "GREW" if found.growth else found.note
        lines.append(
            f"{found.process:24} {sizes[0]:8.1f} {sizes[1]:8.1f} {found.change:+8.1%} {sizes[2]:8.1f} {files:>11} "
            f"{threads:>9}  {word}".rstrip()
        )
    return "\n".join(lines)


def write_heading(path: Path) -> None:
    """Begin a CSV of samples."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerow(each.name for each in fields(Sample))


def append_samples(path: Path, samples: Iterable[Sample]) -> None:
    """Add to it."""
    with path.open("a", newline="") as file:
        csv.writer(file).writerows(astuple(each) for each in samples)
