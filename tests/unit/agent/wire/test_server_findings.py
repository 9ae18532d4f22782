"""The words for a server, and what is kept of them."""

from __future__ import annotations

import pytest

from agent.wire.dialect import CommandLists, Dialect, ResultPlace
from agent.wire.server_findings import ServerFindings, describe, read_findings, sentence

PLAIN = ServerFindings("http://s", announced=())
FULL = ServerFindings(
    "http://s",
    "7",
    ("command-results", "command-status", "recorded-at"),
    CommandLists.EVERYTHING,
    "page 51 was not asked for",
    True,
    "created_at",
    ("abgeholt", "wartet"),
    "404 not_found",
    (("recorded-at", "400 unknown member"),),
)


class TestWords:
    @pytest.mark.parametrize(
        ("findings", "dialect", "words"),
        [
            (ServerFindings(), Dialect(), "was not asked yet what it offers"),
            (
                PLAIN,
                Dialect(),
                (
                    "offers no extensions (a plain server), is sent results as records of table command_results, "
                    "takes no recorded_at"
                ),
            ),
            (
                ServerFindings(announced=(), lists=CommandLists.EVERYTHING, no_place="404 not_found"),
                Dialect(),
                (
                    "offers no extensions (a plain server), lists everything, has no place for results (404 "
                    "not_found), takes no recorded_at"
                ),
            ),
            (
                PLAIN,
                Dialect(recorded_at_reading="t", results=ResultPlace.NONE, command_lists=CommandLists.ONCE),
                (
                    "offers no extensions (a plain server), hands each command out once, has no place for results "
                    "(configured), takes no recorded_at, so the time is sent as the reading t"
                ),
            ),
            (
                ServerFindings(),
                Dialect(extensions=frozenset({"recorded-at", "command-status", "command-results"})),
                (
                    "offers command-results, command-status, recorded-at, lists open commands alone, takes results at "
                    "their commands, takes recorded_at"
                ),
            ),
            (
                FULL,
                Dialect(),
                (
                    "offers command-results, command-status, recorded-at, lists open commands alone, does not give the "
                    "whole list of commands (page 51 was not asked for), gives commands without an id, so ids are "
                    "derived from content and time, writes times that cannot be read (created_at), has states of its "
                    "own (abgeholt, wartet), has no place for results (404 not_found), takes no recorded_at, refuses "
                    "recorded-at (400 unknown member)"
                ),
            ),
        ],
    )
    def test_are_these(self, findings, dialect, words):
        assert sentence(describe(findings, dialect)) == f"this server: {words}"


class TestText:
    @pytest.mark.parametrize("findings", [ServerFindings(), PLAIN, FULL])
    def test_is_read_as_it_was_written(self, findings):
        assert read_findings(findings.to_json()) == findings

    @pytest.mark.parametrize(
        "text",
        [
            None,
            "",
            "null",
            "[]",
            "{",
            '{"lists": "some"}',
            '{"announced": 7}',
            '{"withdrawn": 7}',
            '{"withdrawn": [1]}',
        ],
    )
    def test_that_is_none_is_no_finding(self, text):
        assert read_findings(text) is None
