"""The record of a fleet run: everything that reports, comparisons and thresholds are made of. Values, no logic.

``run.json`` in the run's folder is this record as JSON; ``seconds.jsonl`` beside it has one :class:`Second` a line.
Histograms travel encoded (:mod:`simulator.fleet.metrics`). Instants are seconds since the run's begin, unless a name
ends in ``_at``: those are RFC 3339.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from simulator.exit_codes import ExitCode
from simulator.fleet.outcomes import OutcomeClass

RECORD_FORMAT: Final = "fleet-run/4"


class VerdictStatus(StrEnum):
    """The verdict in one word; each belongs to one exit code."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    """The generator, not the target, was the limit (exit code 3)."""
    LOST = "lost"
    """Data lost, doubled or changed (exit code 4)."""
    UNREACHABLE = "unreachable"
    INTERRUPTED = "interrupted"


EXIT_CODES: Final = {
    VerdictStatus.PASSED: ExitCode.GOOD,
    VerdictStatus.FAILED: ExitCode.CHECK_FAILED,
    VerdictStatus.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    VerdictStatus.LOST: ExitCode.DATA_LOST,
    VerdictStatus.UNREACHABLE: ExitCode.UNREACHABLE,
    VerdictStatus.INTERRUPTED: ExitCode.INTERRUPTED,
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the run ended.

    Attributes:
        sentences: why, for a person; the weightiest first.
    """

    word: VerdictStatus
    exit_code: int
    sentences: tuple[str, ...] = ()


NOT_ENDED: Final = Verdict(VerdictStatus.INTERRUPTED, ExitCode.INTERRUPTED, ("the run has not ended",))


@dataclass(frozen=True, slots=True)
class Span:
    """A phase of the run, or a fault that was made on purpose.

    Attributes:
        kind: ``ramp``, ``hold``, ``storm`` for phases; the fault's kind otherwise.
        begin_s, end_s: since the run's begin.
        devices: how many it concerned.
        truth: what exactly was done, for whoever judges a detector by it.
    """

    name: str
    kind: str
    begin_s: float
    end_s: float
    devices: int = 0
    truth: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tally:
    """One operation and outcome class, over a second or over the run.

    Attributes:
        count: exchanges that ended so.
        first_attempts: those of them that were no resend.
        response: encoded histogram from the *intended* time to the answer, seconds: what a device waits.
        service: encoded histogram from the sent time to the answer: what the target took.
        resends_ambiguous: resends whose earlier attempts may have been carried out, for all that anybody knows. All
            others follow refusals only.
    """

    count: int
    first_attempts: int
    response: str
    service: str
    resends_ambiguous: int = 0


Operations = Mapping[str, Mapping[OutcomeClass, Tally]]
"""Operation, such as ``http.sensor_data``, to outcome class to what was measured."""


@dataclass(frozen=True, slots=True)
class GeneratorHealth:
    """How far the generator itself can be trusted: the error bars.

    Attributes:
        send_lag_p99_s, send_lag_max_s: from intended to sent.
        loop_lag_max_s: how late the loop woke up.
        steal_percent: CPU time that the host took.
        cpu_percent: of one core, the busiest worker.
        intended, sent: requests that the plan asked for, and those that went out.
        send_lag: encoded histogram from intended to sent, which several seconds are merged by.
        undelivered: of the intended requests the open arrivals that never ended: not sent when the run was over, or
            still without an answer.
        stood_still_s: how long a worker made no load at all, the longest of them.
    """

    send_lag_p99_s: float = 0.0
    send_lag_max_s: float = 0.0
    loop_lag_max_s: float = 0.0
    steal_percent: float = 0.0
    cpu_percent: float = 0.0
    intended: int = 0
    sent: int = 0
    send_lag: str = ""
    undelivered: int = 0
    stood_still_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Second:
    """One second of the run, merged over all workers.

    Attributes:
        second: since the run's begin.
        gauges: ``online``, ``waiting_readings``, ``open_commands``, ``connections`` and the like.
        late: of the operations of a second after the phases, those that fell due in the phases: what they waited
            belongs to the phases, which thresholds are about. Empty in all other seconds.
    """

    second: int
    operations: Operations
    gauges: Mapping[str, float]
    health: GeneratorHealth
    late: Operations = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ThresholdResult:
    """One threshold and what became of it.

    Attributes:
        observed: the value that it was held against; the worst window's where it names one.
        at_s: the end of the worst window; None for the run as a whole.
        reason: why nothing was observed; empty when something was.
        judged: False when the run ended before anything of it was measured: it neither held nor failed.
    """

    expression: str
    held: bool
    observed: float | None
    unit: str = ""
    at_s: float | None = None
    reason: str = ""
    judged: bool = True

    @property
    def missed_text(self) -> str:
        """How it did not hold, in a sentence."""
        if self.observed is None:
            return f"{self.expression}: {self.reason or 'nothing was measured'}"
        at = "" if self.at_s is None else f" at {self.at_s:.0f} s"
        return f"{self.expression}: it was {self.observed:.4g} {self.unit}".rstrip() + at


@dataclass(frozen=True, slots=True)
class DeviceFinding:
    """What the audit found of one device.

    Attributes:
        kind: ``lost``, ``doubled``, ``altered``, ``unknown``, ``misdated``.
        count: of readings or commands.
        keys: a few of them, to look them up.
    """

    device_id: str
    name: str
    kind: str
    count: int
    keys: tuple[str, ...] = ()


WRONGS: Final = ("lost", "doubled", "altered", "unknown")
"""Members of :class:`StreamAudit` that are to be 0, the gravest first."""


@dataclass(frozen=True, slots=True)
class StreamAudit:
    """The audit of readings, or of commands.

    Attributes:
        sent: left a device at least once.
        accepted: answered with 2xx.
        stored: what the service gives back.
        lost: accepted, and not given back.
        unknown: given back, and never sent, or refused for good.
        ambiguous: sent without an answer: they may be stored or not, and count as neither.
        resent: sent again.
        resent_ambiguous: those of them whose earlier sendings may have arrived; all others had been refused.
        misdated: carried another time than that at which they were made.
    """

    sent: int
    accepted: int
    stored: int
    lost: int
    doubled: int
    altered: int
    unknown: int
    ambiguous: int = 0
    resent: int = 0
    resent_ambiguous: int = 0
    misdated: int = 0

    @property
    def wrong(self) -> str:
        """What is wrong, such as ``2 lost, 1 altered``; empty when nothing is."""
        return ", ".join(f"{getattr(self, kind):,} {kind}" for kind in WRONGS if getattr(self, kind))


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """What the service gives back, held against the ledgers.

    Attributes:
        complete: everything was read back; False when the target went away or the run was cut short.
        findings: by device, the worst first, bounded.
        registrations: of an onboarding storm.
        failures: what was sent and not accepted although the scenario plans no such thing, one sentence each.
        unjudged: why it is not complete, one sentence each.
        unjudged_counts: which counts nobody can say, such as ``commands.lost``; of an audit that is not complete
            without any that is true of all.
    """

    readings: StreamAudit | None
    commands: StreamAudit | None
    complete: bool
    sentences: tuple[str, ...] = ()
    findings: tuple[DeviceFinding, ...] = ()
    registrations: StreamAudit | None = None
    failures: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    unjudged_counts: tuple[str, ...] = ()

    @property
    def streams(self) -> list[tuple[str, StreamAudit]]:
        """``readings``, ``commands`` and ``registrations``, those that there are."""
        pairs = (("readings", self.readings), ("commands", self.commands), ("registrations", self.registrations))
        return [(name, stream) for name, stream in pairs if stream is not None]

    def judges(self, stream: str, count: str) -> bool:
        """Whether a count of ``readings``, ``commands`` or ``registrations`` is all that there is of it."""
        return self.complete or (bool(self.unjudged_counts) and f"{stream}.{count}" not in self.unjudged_counts)


@dataclass(frozen=True, slots=True)
class WorkerGap:
    """Seconds that a worker did not report: it was killed, or could not write."""

    worker: int
    from_s: float
    to_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class CommandEnds:
    """How the commands of one stream ended.

    Attributes:
        name: of the command; empty for those that came to devices and that the run did not send.
        expect: how each had to end.
        sent: orders begun.
        refused: orders that the service surely did not accept.
        unanswered: orders that it may have accepted, under an id that is not known: no answer, or one without an id.
        ends: ``succeeded``, ``failed``, ``rejected``, ``expired``, ``open`` (not ended) -> how many.
    """

    name: str
    expect: str
    sent: int
    refused: int
    unanswered: int
    ends: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Reasons:
    """What the verdict was given for, beside thresholds, audit and gaps; a later audit is judged together with it.

    Attributes:
        unreachable: why the target counts as gone; empty when it was there.
        interrupted: who or what ended the run before its time; empty when nobody did.
        saturated: why the generator itself was the limit.
        broken: which parts of the run itself an error has ended.
        failures: what else did not come out as the scenario says.
        held: what a scenario of its own kind proved.
    """

    unreachable: str = ""
    interrupted: str = ""
    saturated: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    held: tuple[str, ...] = ()


class StepWord(StrEnum):
    """What became of a step of a search."""

    HELD = "held"
    BROKE = "broke"
    UNJUDGED = "unjudged"
    """The generator, not the target, was the limit, or a part of the run itself failed."""


@dataclass(frozen=True, slots=True)
class SearchStep:
    """One step of a search for the limit.

    Attributes:
        level: devices that were on, or requests a second.
        why: it did not hold or could not be judged, one sentence each.
        thresholds: over the seconds in which it was held.
    """

    level: float
    word: StepWord
    why: tuple[str, ...]
    thresholds: tuple[ThresholdResult, ...]


@dataclass(frozen=True, slots=True)
class Search:
    """A search for the limit, step by step.

    Attributes:
        name: of its phase.
        unit: ``devices``, or ``requests/s``.
        last: the level of the last step that was planned.
        steps: those that were held to their end, in order; only the last one may be another than held.
        largest_held: the level of the last step that held; None when none did.
    """

    name: str
    unit: str
    last: float
    steps: tuple[SearchStep, ...] = ()
    largest_held: float | None = None

    @property
    def word(self) -> StepWord | None:
        """What became of its last step; None before the first one's end."""
        return self.steps[-1].word if self.steps else None

    @property
    def has_found_limit(self) -> bool:
        """Whether one step held and the next one broke."""
        return self.word is StepWord.BROKE and self.largest_held is not None

    def text(self, level: float) -> str:
        """A level with its unit."""
        return f"{level:,.10g} {self.unit}"


STORM: Final = "onboarding"
"""What a storm of labels found, by name, in :attr:`RunRecord.extras`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A whole run.

    Attributes:
        digest: of the plan: the same for the same scenario and seed, whatever the number of workers.
        operations: all that was measured: requests, the stages of commands (``commands.sent``), how old readings were
            when they were accepted (``readings.age``), and commands when they ended (``commands.age[NAME].STATE``).
        commands: how commands ended, one entry for each of the scenario's, in its order.
        scenario_text: the scenario as it was given.
        extras: what a scenario of its own kind found, by name.
        drained_from_s: when the phases were over and devices only handed over what they had; None when there was no
            such time, or when the work goes on in it.
        partial: why the run did not reach its end, and what of it there is; empty for one that did.
        kind: of the scenario: ``devices``, ``requests``, ``onboarding`` or ``backfill``.
        load_began_at: when second 0 began: devices are made before it. Empty while they are.
        reasons: of the verdict; None while the run goes on.
        search: of a scenario that looks for the limit.
        audited_at: when it was audited once more by ``fleet-simulator audit``; empty when it was not.
    """

    name: str
    kind: str
    seed: int
    digest: str
    transport: str
    workers: int
    devices: int
    began_at: str
    ended_at: str = ""
    duration_s: float = 0.0
    machine: str
    version: str
    target: str
    verdict: Verdict = NOT_ENDED
    phases: tuple[Span, ...]
    faults: tuple[Span, ...] = ()
    operations: Operations = field(default_factory=dict)
    health: GeneratorHealth = GeneratorHealth()
    thresholds: tuple[ThresholdResult, ...] = ()
    audit: AuditRecord | None = None
    commands: tuple[CommandEnds, ...] = ()
    gaps: tuple[WorkerGap, ...] = ()
    scenario_text: str = ""
    extras: Mapping[str, Any] = field(default_factory=dict)
    drained_from_s: float | None = None
    partial: str = ""
    load_began_at: str = ""
    reasons: Reasons | None = None
    search: Search | None = None
    audited_at: str = ""
    format: str = RECORD_FORMAT
