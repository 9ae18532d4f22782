"""When a release on trial is kept, and when it goes back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.update.state import TRYING, Trial
from agent.update.trial import Judge, Seen, Verdict

TRIAL = Trial(TRYING, "2.0", "d", began_s=100.0, probation_s=60.0, deadline_s=300.0)
WELL = Seen(is_ready=True, process_id=7, version="2.0", is_connected=True, detail="ok", alive_s=1000)


def seen(**changes) -> Seen:
    return Seen(**{name: changes.get(name, getattr(WELL, name)) for name in Seen.__slots__})


def test_another_process_begins_its_probation_anew():
    judge = Judge(TRIAL)
    judge.look(WELL, 100)
    assert judge.look(seen(process_id=8), 160) is Verdict.WAIT
    assert judge.look(seen(process_id=8), 220) is Verdict.KEEP


def test_what_hangs_after_it_was_well_goes_back_a_minute_after_the_deadline():
    judge = Judge(TRIAL)
    hung = seen(alive_s=150)
    for now_s in (100, 160, 399, 459):
        assert judge.look(hung, now_s) is Verdict.WAIT
    assert judge.look(hung, 460) is Verdict.GO_BACK
    assert "it hangs" in judge.missing


def test_a_word_that_comes_late_is_waited_for():
    judge = Judge(TRIAL)
    judge.look(seen(alive_s=330), 335)
    assert judge.look(seen(alive_s=390), 401) is Verdict.WAIT
    assert judge.look(seen(alive_s=420), 421) is Verdict.KEEP


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"is_ready": False}, "not say that it is ready"),
        ({"process_id": 0}, "not say that it is ready"),
        ({"version": "1.0"}, "runs version 1.0"),
        (
            {"is_connected": False, "detail": "unreachable no route"},
            "no exchange with the server (unreachable no route)",
        ),
    ],
)
def test_what_never_shows_all_goes_back_at_the_deadline_with_what_is_missing(change, says):
    judge = Judge(TRIAL)
    assert judge.look(seen(**change), 399) is Verdict.WAIT
    assert judge.look(seen(**change), 400) is Verdict.GO_BACK
    assert says in judge.missing


def test_one_exchange_is_enough_and_a_network_that_goes_away_later_takes_nothing_back():
    judge = Judge(TRIAL)
    judge.look(WELL, 100)
    assert judge.look(seen(is_connected=False), 160) is Verdict.KEEP


def test_a_handler_that_is_lost_goes_back_at_once_and_a_sensor_is_waited_for():
    trial = replace(TRIAL, worked_before=("handler:run", "sensor:t"))
    judge = Judge(trial)
    both = frozenset(trial.worked_before)
    judge.look(seen(working=both), 100)
    assert judge.look(seen(working=frozenset({"handler:run"})), 160) is Verdict.WAIT
    assert judge.missing == "sensor t worked before and does not now: it is gone"
    assert judge.look(seen(working=frozenset({"sensor:t"})), 161) is Verdict.GO_BACK
    assert judge.look(seen(working=both), 162) is Verdict.KEEP
