from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.fleet.record import AuditRecord, Reasons, StreamAudit, ThresholdResult, VerdictStatus, WorkerGap
from simulator.fleet.verdict import judge_run
from tests.support.fleet_runs import blank_record


def found(audit=None, thresholds=(), **more):
    return blank_record(audit=audit, thresholds=thresholds, **more)


ENDED = "ended by hand before its time"
CLEAN = StreamAudit(sent=10, accepted=10, stored=10, lost=0, doubled=0, altered=0, unknown=0)
AUDIT = AuditRecord(CLEAN, None, complete=True)
LOSS = replace(AUDIT, readings=replace(CLEAN, lost=2, altered=1))
HELD = ThresholdResult("audit.lost == 0", held=True, observed=0.0)
MISSED = ThresholdResult("http.poll.p99 < 250ms over 1m", held=False, observed=0.4, unit="s", at_s=61.0)


@pytest.mark.parametrize(
    ("record", "word", "code", "first"),
    [
        (found(), VerdictStatus.PASSED, 0, "it ran to its end; the scenario asks for nothing more"),
        (found(AUDIT, [HELD]), VerdictStatus.PASSED, 0,
         "the threshold held; nothing was lost, doubled or altered"),
        (found(AUDIT, [HELD, HELD], reasons=Reasons(held=("9 of 9 checks held",))),
         VerdictStatus.PASSED, 0,
         "all 2 thresholds held; 9 of 9 checks held; nothing was lost, doubled or altered"),
        (found(AUDIT, [HELD, MISSED]), VerdictStatus.FAILED, 1,
         "http.poll.p99 < 250ms over 1m: it was 0.4 s at 61 s"),
        (found(AUDIT, reasons=Reasons(failures=("the barrier never opened",))), VerdictStatus.FAILED, 1,
         "the barrier never opened"),
        (found(AUDIT, [MISSED], reasons=Reasons(saturated=("too slow",))), VerdictStatus.INCONCLUSIVE, 3,
         "too slow"),
        (found(gaps=[WorkerGap(1, 3.2, 9.0, "killed")]), VerdictStatus.INCONCLUSIVE, 3,
         "worker 1 did not report from 3 s to 9 s: killed"),
        (found(replace(AUDIT, complete=False)), VerdictStatus.INCONCLUSIVE, 3,
         "the audit is not complete: not everything could be read back"),
        (found(replace(AUDIT, complete=False), [MISSED]), VerdictStatus.FAILED, 1,
         "http.poll.p99 < 250ms over 1m: it was 0.4 s at 61 s"),
        (found(AUDIT, [MISSED], reasons=Reasons(interrupted=ENDED)), VerdictStatus.INTERRUPTED, 130,
         "ended by hand before its time"),
        (found(replace(AUDIT, complete=False), reasons=Reasons("gone", ENDED)), VerdictStatus.UNREACHABLE, 5,
         "gone"),
        (found(LOSS, [MISSED], reasons=Reasons("gone", ENDED)), VerdictStatus.LOST, 4,
         "readings: 2 lost, 1 altered of 10 sent"),
        (found(thresholds=[replace(MISSED, observed=None)]), VerdictStatus.FAILED, 1,
         "http.poll.p99 < 250ms over 1m: nothing was measured"),
        (found(replace(AUDIT, failures=("none of the 9 readings was accepted",))), VerdictStatus.FAILED, 1,
         "none of the 9 readings was accepted"),
        (found(replace(AUDIT, complete=False, unjudged=("rows of no known shape",))), VerdictStatus.INCONCLUSIVE, 3,
         "rows of no known shape"),
    ],
)  # fmt: skip
def test_what_weighs_most_gives_the_word(record, word, code, first):
    verdict = judge_run(record)
    assert (verdict.word, verdict.exit_code, verdict.sentences[0]) == (word, code, first)


def test_every_reason_is_told():
    verdict = judge_run(found(LOSS, [MISSED, HELD], reasons=Reasons(interrupted=ENDED, saturated=("too slow",))))
    assert len(verdict.sentences) == 4


def test_a_run_that_ended_early_keeps_the_word_of_its_cause_and_says_what_its_figures_are_worth():
    unknown = replace(MISSED, observed=None, reason="no whole second of a phase 'hold'", judged=False)
    partial = "it ended after 12 s of 40 s"
    verdict = judge_run(found(AUDIT, [HELD, MISSED, unknown], partial=partial, reasons=Reasons(interrupted=ENDED)))
    assert (verdict.word, verdict.exit_code) == (VerdictStatus.INTERRUPTED, 130)
    assert verdict.sentences == (
        "ended by hand before its time",
        "partial: it ended after 12 s of 40 s; of 3 thresholds 1 held so far, 1 did not, 1 could not be judged",
        "http.poll.p99 < 250ms over 1m: it was 0.4 s at 61 s",
    )
    killed = judge_run(found(gaps=[WorkerGap(1, 3, 9, "killed")], partial="1 of 2 workers did not come to their end"))
    assert (killed.exit_code, killed.sentences[1]) == (3, "partial: 1 of 2 workers did not come to their end")
