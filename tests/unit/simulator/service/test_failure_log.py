"""Failures of the storage in the log: one line each, repeats counted."""

from __future__ import annotations

import logging
import sqlite3

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError

from simulator.service.errors import Unavailable, not_found
from simulator.service.failure_log import AGAIN_S, FailureLog, already_logged

log = logging.getLogger("tests.failures")


def failed(text: str = "database or disk is full") -> OperationalError:
    return OperationalError("INSERT INTO readings VALUES (?)", ("a secret",), sqlite3.OperationalError(text))


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.INFO, log.name)
    now = [100.0]
    return FailureLog(log, lambda: now[0]), caplog, now


def test_a_thousand_failures_are_one_line_without_a_traceback_or_the_statement(told):
    failures, caplog, _ = told
    for _ in range(1000):
        failures.report("the storage could not be read", failed())
    (record,) = caplog.records
    assert record.getMessage() == "the storage could not be read: database or disk is full"
    assert record.exc_info is None
    assert "secret" not in caplog.text


def test_what_goes_on_is_told_again_each_minute_with_how_often_it_came(told):
    failures, caplog, now = told
    for _ in range(3):
        failures.report("x", failed())
    now[0] += AGAIN_S
    failures.report("x", failed())
    failures.report("x", failed())
    assert [record.getMessage() for record in caplog.records][1:] == [
        "x: database or disk is full (and 2 times more since this was last said)"
    ]


def test_another_complaint_is_told_at_once(told):
    failures, caplog, _ = told
    failures.report("x", failed())
    failures.report("x", failed("the server went away\nwith more lines"))
    failures.report("y", failed())
    assert [record.getMessage() for record in caplog.records] == [
        "x: database or disk is full",
        "x: the server went away",
        "y: database or disk is full",
    ]


def test_the_traceback_comes_at_debug_and_whenever_the_storage_is_not_to_blame(told):
    failures, caplog, _ = told
    failures.report("x", IntegrityError("INSERT", (), sqlite3.IntegrityError("a row is there twice")))
    caplog.set_level(logging.DEBUG, log.name)
    failures.report("x", failed())
    assert [record.exc_info is not None for record in caplog.records] == [True, True]


def test_endless_variety_is_not_kept(told):
    failures, _, _ = told
    for number in range(1000):
        failures.report("x", failed(f"page {number} is broken"))
    assert len(failures._logged) <= 100


def test_only_the_answer_to_a_storage_failure_has_been_logged():
    assert already_logged(Unavailable("storage_unavailable", "x"))
    assert not already_logged(not_found("device", "x"))
    assert not already_logged(ValueError())
