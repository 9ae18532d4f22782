"""Servers that choose otherwise, and what the agent's HTTP side does with them: nothing is lost, and what was found out
is kept."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from agent.core.listed import ListWatch
from agent.core.values import Report
from agent.errors import Forbidden, NoPlaceForResults, NotFound, Refused, ServerFault
from agent.transports.discovery import Discovery
from agent.transports.http_source import HttpSource
from agent.transports.http_uplink import HttpUplink
from agent.wire.client import DeviceClient
from agent.wire.dialect import CommandLists, Dialect, ResultPlace
from agent.wire.lists import ITEMS_MAX
from agent.wire.server_profile import CANCELED_QUERY, IF_NONE_MATCH, SETTING, describe
from tests.contract.test_command_source_port import RECORDS, Answer, ScriptedServer, serve  # noqa: F401 - a fixture
from tests.contract.test_uplink_port import stored
from tests.fakes import FakeClock, FakeJournal

Serve = Callable[..., tuple[ScriptedServer, Any]]


class Strict:
    """A server that refuses what it does not know.

    Args:
        announced: its discovery document's extensions; None has no such path.
        version: the discovery document's.
        refuses: what it refuses for all that: query parameters, body members, headers, ``array`` and paths.
        status: how it refuses.
    """

    def __init__(
        self,
        announced: list[str] | None = None,
        *,
        version: str = "1",
        refuses: tuple[str, ...] = (),
        status: int = 400,
        records: list[dict[str, Any]] | None = None,
        etag: str = "",
    ) -> None:
        self.announced = announced
        self.version = version
        self.refuses = refuses
        self.status = status
        self.records = RECORDS if records is None else records
        self.etag = etag
        self.server: ScriptedServer
        self.taken: list[dict[str, Any]] = []
        self.devices = Answer(body=[{"device_id": "d1", "product_id": "p1"}])
        self.table = Answer(201, {})

    def __call__(self, method: str, target: str, headers: dict[str, str]) -> Answer:
        parts = urlsplit(target)
        body = self.server.bodies[-1]
        used = {*parse_qs(parts.query), *headers, *(body if isinstance(body, dict) else ())}
        used |= {"array"} if isinstance(body, list) else set()
        used |= {member for each in body for member in each} if isinstance(body, list) else set()
        if parts.path.startswith("/.well-known"):
            known = {"extensions": self.announced, "version": self.version}
            return Answer(404, {"error": "not_found"}) if self.announced is None else Answer(body=known)
        for name in self.refuses:
            if name in used or name in parts.path:
                return Answer(self.status, {"error": "not_found" if self.status == 404 else f"unknown {name}"})
        if parts.path in {"/devices", "/database/runtime-data"}:
            return self.devices if method == "GET" else self.table
        if method == "GET":
            tag = {"ETag": self.etag} if self.etag else {}
            return (
                Answer(304, b"", tag)
                if tag and headers.get("if-none-match") == self.etag
                else Answer(body=self.records, headers=tag)
            )
        self.taken += body if isinstance(body, list) else [body]
        if isinstance(body, list):
            return Answer(200, {"accepted": len(body), "errors": []})
        return Answer(201, {})

    def asked(self, part: str) -> list[str]:
        """The targets that were asked for and hold this text."""
        return [target for _, target, _ in self.server.asked if part in target]


class Life:
    """One life of the agent's HTTP side: a restart is another one with the same journal."""

    def __init__(
        self,
        serve: Serve,  # noqa: F811
        server: Strict,
        *,
        journal: FakeJournal | None = None,
        dialect: Dialect | None = None,
        product_id: str | None = "p1",
        client: Any = None,
    ) -> None:
        if client is None:
            server.server, client = serve(server)
        self.server, self.client = server, client
        self.journal = FakeJournal() if journal is None else journal
        self.clock = FakeClock()
        self.discovery = Discovery(client, self.clock, dialect, self.journal)
        watch = ListWatch()
        self.source = HttpSource(client, "d1", self.discovery, watch=watch)
        self.uplink = HttpUplink(client, "d1", product_id, self.discovery, watch=watch)

    def restarted(self, dialect: Dialect | None = None) -> Life:
        return Life(None, self.server, journal=self.journal, dialect=dialect, client=self.client)  # type: ignore[arg-type]

    def ids(self) -> list[str]:
        return [command.id for command in self.source.poll(0).commands]

    def words(self) -> str:
        return ", ".join(describe(self.discovery.profile, self.discovery.dialect))


STRICT = ("status", "wait", "recorded_at", "idempotency-key")


class TestAPlainServer:
    def test_nothing_beyond_the_specification_is_sent(self, serve):  # noqa: F811
        life = Life(serve, Strict(refuses=(*STRICT, "array", "/result")))
        assert life.ids() == ["c1", "c2"]
        assert life.uplink.send(stored(1, 2)).delivered == (1, 2)
        life.uplink.report(Report("c1", "in_progress"))
        life.uplink.report(Report("c1", "succeeded"))
        assert life.source.canceled(["c1"]) == frozenset()
        assert life.server.asked("?") == []
        assert not life.discovery.profile.withdrawn

    def test_states_of_its_own_hide_no_command_and_are_told(self, serve):  # noqa: F811
        records = [{**RECORDS[0], "status": "pending"}, {**RECORDS[1], "status": "abgeholt"}]
        life = Life(serve, Strict(records=records))
        assert life.ids() == ["c1", "c2"]
        assert "has states of its own (abgeholt, pending)" in life.words()

    @pytest.mark.parametrize(
        ("announced", "lists", "believed"),
        [
            (None, None, [None, None, None, None, "done"]),
            ([], None, [None, None, None, None, "done"]),
            (["command-status"], None, ["queued", "delivered", "in_progress", "queued", "done"]),
            (None, CommandLists.OPEN, ["queued", "delivered", "in_progress", "queued", "done"]),
            (None, CommandLists.EVERYTHING, [None, None, None, None, "done"]),
            (None, CommandLists.ONCE, [None, None, None, None, "done"]),
        ],
    )
    def test_a_word_for_open_counts_only_where_states_are_announced(self, serve, announced, lists, believed):  # noqa: F811
        words = ["queued", "delivered", "in_progress", "offen", "done"]
        records = [{**RECORDS[0], "id": word, "status": word} for word in words]
        life = Life(serve, Strict(announced, records=records), dialect=Dialect(command_lists=lists))
        states = {command.id: command.status for command in life.source.poll(0).commands}
        assert [states[word] for word in words] == believed

    def test_a_server_that_refuses_the_query_for_states_is_not_taken_at_its_word(self, serve):  # noqa: F811
        records = [{**RECORDS[0], "status": "queued"}]
        life = Life(serve, Strict(["command-status"], records=records, refuses=("status",)))
        assert [command.status for command in life.source.poll(0).commands] == [None]

    def test_the_time_of_reading_goes_under_the_configured_name(self, serve):  # noqa: F811
        life = Life(serve, Strict(), dialect=Dialect(recorded_at_reading="read_at_s"))
        life.uplink.send(stored(1))
        assert life.server.taken == [{"device_id": "d1", "sensor_data": {"n": 1.0, "read_at_s": 1767225600.0}}]

    def test_a_sensor_with_that_name_is_not_overwritten_and_said_once(self, serve, caplog):  # noqa: F811
        life = Life(serve, Strict(), dialect=Dialect(recorded_at_reading="n"))
        life.uplink.send(stored(1, 2))
        assert [each["sensor_data"] for each in life.server.taken] == [{"n": 1.0}, {"n": 2.0}]
        assert len([each for each in caplog.messages if "recorded_at_reading" in each]) == 1

    def test_a_path_for_discovery_that_fails_for_ever_ends_as_a_plain_server(self, serve):  # noqa: F811
        server = Strict(["command-status"])
        life = Life(serve, server)

        def failing(method: str, target: str, headers: dict[str, str]) -> Answer:
            return Answer(500, {"error": "x"}) if "well-known" in target else server(method, target, headers)

        broken, client = serve(failing)
        server.server = broken
        life = Life(serve, server, client=client)
        for _ in range(2):
            with pytest.raises(ServerFault):
                life.source.poll(0)
        assert life.ids() == ["c1", "c2"]
        assert server.asked("status=") == []

    @pytest.mark.parametrize(
        ("announced", "extensions"),
        [(None, frozenset({"command-status", "recorded-at"})), (["command-status", "recorded-at"], frozenset())],
    )
    def test_configured_extensions_replace_the_question(self, serve, announced, extensions):  # noqa: F811
        life = Life(serve, Strict(announced), dialect=Dialect(extensions=extensions))
        life.ids()
        life.uplink.send(stored(1))
        assert life.server.asked("well-known") == []
        assert bool(life.server.asked("status=open")) is bool(extensions)
        assert ("recorded_at" in life.server.taken[0]) is bool(extensions)


class TestWithdrawing:
    """What a server announces and refuses: found out once, said once, and nothing is lost."""

    @pytest.mark.parametrize("status", [400, 404, 405, 422, 501])
    @pytest.mark.parametrize("name", ["status", "wait"])
    def test_a_parameter_of_the_poll(self, serve, name, status, caplog):  # noqa: F811
        life = Life(serve, Strict(["command-status", "long-poll"], refuses=(name,), status=status))
        for _ in range(3):
            assert [each.id for each in life.source.poll(20).commands] == ["c1", "c2"]
        feature = {"status": "command-status", "wait": "long-poll"}[name]
        assert [each for each, _ in life.discovery.profile.withdrawn] == [feature]
        assert len(life.server.asked(f"{name}=")) <= 2
        assert len([each for each in caplog.messages if "server=refuses" in each]) == 1

    @pytest.mark.parametrize("status", [400, 412, 431])
    def test_if_none_match(self, serve, status):  # noqa: F811
        life = Life(serve, Strict(etag='"v1"', refuses=("if-none-match",), status=status))
        for _ in range(3):
            assert life.ids() == ["c1", "c2"]
            life.source.acknowledge(["c1", "c2"])
        assert [each for each, _ in life.discovery.profile.withdrawn] == [IF_NONE_MATCH]
        assert len([1 for _, _, headers in life.server.server.asked if "if-none-match" in headers]) == 1

    def test_a_device_that_is_gone_withdraws_nothing(self, serve):  # noqa: F811
        life = Life(serve, Strict(["command-status"], refuses=("/devices/",), status=404))
        with pytest.raises(NotFound):
            life.source.poll(0)
        assert not life.discovery.profile.withdrawn

    def test_the_list_of_canceled_commands(self, serve):  # noqa: F811
        server = Strict(["command-status"])
        life = Life(serve, server)
        life.ids()
        server.refuses = ("status",)
        assert life.source.canceled(["c1"]) == frozenset()
        assert life.source.canceled(["c1"]) == frozenset()
        assert [each for each, _ in life.discovery.profile.withdrawn] == [CANCELED_QUERY]
        assert len(server.asked("canceled")) == 1

    @pytest.mark.parametrize("extensions", [["recorded-at"], ["recorded-at", "batch-sensor-data", "idempotency-key"]])
    def test_recorded_at(self, serve, extensions):  # noqa: F811
        life = Life(serve, Strict(extensions, refuses=("recorded_at",)))
        outcome = life.uplink.send(stored(1, 2, 3))
        assert sorted(outcome.delivered) == [1, 2, 3]
        assert life.uplink.send(stored(4, 5)).delivered == (4, 5)
        assert sorted(each["sensor_data"]["n"] for each in life.server.taken) == [1, 2, 3, 4, 5]
        assert [each for each, _ in life.discovery.profile.withdrawn] == ["recorded-at"]

    def test_recorded_at_that_one_by_one_in_an_array_is_refused(self, serve):  # noqa: F811
        server = Strict(["recorded-at", "batch-sensor-data"], refuses=())
        life = Life(serve, server)

        def judge(method: str, target: str, headers: dict[str, str]) -> Answer:
            body = server.server.bodies[-1]
            if isinstance(body, list) and "recorded_at" in body[0]:
                errors = [{"index": n, "error": "unknown_member", "message": "recorded_at"} for n in range(len(body))]
                return Answer(200, {"accepted": 0, "errors": errors})
            if isinstance(body, dict) and "recorded_at" in body:
                return Answer(400, {"error": "unknown_member", "message": "recorded_at"})
            return server(method, target, headers)

        server.server, client = serve(judge)
        life = Life(serve, server, client=client)
        assert sorted(life.uplink.send(stored(1, 2, 3)).delivered) == [1, 2, 3]
        assert [each for each, _ in life.discovery.profile.withdrawn] == ["recorded-at"]

    def test_one_bad_time_does_not_withdraw_what_the_server_took_before(self, serve):  # noqa: F811
        server = Strict(["recorded-at"])
        life = Life(serve, server)
        life.uplink.send(stored(1))
        server.refuses = ("recorded_at",)
        assert life.uplink.send(stored(2)).delivered == (2,)
        assert not life.discovery.profile.withdrawn

    def test_a_reading_that_is_bad_itself_is_set_aside_and_withdraws_nothing(self, serve):  # noqa: F811
        life = Life(serve, Strict(["recorded-at", "idempotency-key"], refuses=("sensor_data",)))
        assert list(life.uplink.send(stored(1)).refused) == [1]
        assert not life.discovery.profile.withdrawn

    @pytest.mark.parametrize("status", [400, 404, 405, 415, 501])
    def test_arrays(self, serve, status):  # noqa: F811
        life = Life(serve, Strict(["batch-sensor-data"], refuses=("array",), status=status))
        assert sorted(life.uplink.send(stored(1, 2, 3)).delivered) == [1, 2, 3]
        assert not life.discovery.offers("batch-sensor-data")
        before = len(life.server.server.asked)
        life.uplink.send(stored(4, 5))
        assert len(life.server.server.asked) == before + 2

    @pytest.mark.parametrize("status", [400, 412, 431])
    def test_idempotency_keys(self, serve, status):  # noqa: F811
        life = Life(serve, Strict(["idempotency-key", "recorded-at"], refuses=("idempotency-key",), status=status))
        assert life.uplink.send(stored(1, 2)).delivered == (1, 2)
        life.uplink.report(Report("c1", "succeeded"))
        assert [each for each, _ in life.discovery.profile.withdrawn] == ["idempotency-key"]
        assert all("recorded_at" in each for each in life.server.taken)

    @pytest.mark.parametrize("status", [404, 405, 501])
    def test_results_at_their_commands(self, serve, status):  # noqa: F811
        life = Life(serve, Strict(["command-results"], refuses=("/result",), status=status))
        life.uplink.report(Report("c1", "succeeded"))
        life.uplink.report(Report("c2", "succeeded"))
        assert len(life.server.asked("/database/runtime-data")) == 2
        assert len(life.server.asked("/result")) == 1

    def test_the_service_itself_is_asked_with_all_of_it(self, serve):  # noqa: F811
        extensions = ["command-status", "recorded-at", "batch-sensor-data", "idempotency-key", "command-results"]
        life = Life(serve, Strict(extensions))
        life.ids()
        life.uplink.send(stored(1, 2))
        life.uplink.report(Report("c1", "succeeded"))
        assert life.server.asked("status=open")
        assert all("recorded_at" in each for each in life.server.taken[:2])
        assert not life.discovery.profile.withdrawn


class TestResults:
    @pytest.mark.parametrize(
        ("status", "error"), [(404, NotFound), (403, Forbidden), (405, Refused), (400, Refused), (500, ServerFault)]
    )
    def test_a_table_that_takes_none_is_raised_and_found_out(self, serve, status, error):  # noqa: F811
        server = Strict()
        server.table = Answer(status, {"error": "no"})
        life = Life(serve, server)
        life.ids()
        for _ in range(3):
            with pytest.raises(error):
                life.uplink.report(Report("c1", "succeeded"))
        assert f"has no place for results ({status} no)" in life.words()
        server.table = Answer(201, {})
        life.uplink.report(Report("c1", "succeeded"))
        assert "no place" not in life.words()

    def test_one_result_that_is_refused_for_its_content_does_not_make_the_table_no_place(self, serve):  # noqa: F811
        server = Strict()
        server.table = Answer(400, {"error": "too_large"})
        life = Life(serve, server)
        with pytest.raises(Refused):
            life.uplink.report(Report("c1", "succeeded", {"big": "x"}))
        assert "no place" not in life.words()
        server.table = Answer(405, {"error": "no"})
        with pytest.raises(Refused):
            life.uplink.report(Report("c1", "succeeded"))
        assert "has no place for results (405 no)" in life.words()

    def test_none_makes_no_request_at_all(self, serve):  # noqa: F811
        life = Life(serve, Strict(["command-results"]), dialect=Dialect(results=ResultPlace.NONE))
        life.uplink.report(Report("c1", "in_progress"))
        with pytest.raises(NoPlaceForResults):
            life.uplink.report(Report("c1", "succeeded"))
        assert life.server.server.asked == []

    @pytest.mark.parametrize("place", [ResultPlace.TABLE, ResultPlace.ENDPOINT])
    def test_a_configured_place_goes_before_what_is_announced(self, serve, place):  # noqa: F811
        announced = ["command-results"] if place is ResultPlace.TABLE else None
        dialect = Dialect(results=place, results_table="outcomes")
        life = Life(serve, Strict(announced), dialect=dialect)
        life.uplink.report(Report("c1", "succeeded"))
        [(path, body)] = [
            (target, body)
            for (method, target, _), body in zip(life.server.server.asked, life.server.server.bodies, strict=True)
            if method == "POST"
        ]
        assert path == ("/database/runtime-data" if place is ResultPlace.TABLE else "/devices/d1/commands/c1/result")
        if place is ResultPlace.TABLE:
            assert body["table_name"] == "outcomes"

    def test_without_a_product_there_is_no_place_and_no_list_of_devices_is_read(self, serve):  # noqa: F811
        server = Strict()
        life = Life(serve, server, product_id=None)
        with pytest.raises(NoPlaceForResults, match=r"set device\.product_id"):
            life.uplink.report(Report("c1", "succeeded"))
        assert server.asked("/devices") == []
        assert "set device.product_id" in life.discovery.profile.no_place


class TestLists:
    def test_what_is_listed_after_its_result_is_a_list_of_everything(self, serve):  # noqa: F811
        life = Life(serve, Strict())
        life.ids()
        life.uplink.report(Report("c1", "succeeded"))
        life.ids()
        assert life.discovery.profile.lists is CommandLists.EVERYTHING
        assert "lists everything" in life.words()

    def test_a_list_that_a_result_does_not_change_is_a_list_of_everything(self, serve):  # noqa: F811
        life = Life(serve, Strict(etag='"1"'))
        life.source.acknowledge(life.ids())
        life.uplink.report(Report("c1", "succeeded"))
        assert life.source.poll(0).unchanged
        assert life.discovery.profile.lists is CommandLists.EVERYTHING

    def test_an_unchanged_list_without_an_ended_command_says_nothing(self, serve):  # noqa: F811
        life = Life(serve, Strict(etag='"1"'))
        life.source.acknowledge(life.ids())
        life.uplink.report(Report("another", "succeeded"))
        assert life.source.poll(0).unchanged
        assert life.discovery.profile.lists is None

    def test_what_leaves_the_list_with_its_result_is_a_list_of_open_commands(self, serve):  # noqa: F811
        server = Strict()
        life = Life(serve, server)
        life.ids()
        life.ids()
        life.uplink.report(Report("c1", "succeeded"))
        server.records = RECORDS[:1]
        life.ids()
        assert life.discovery.profile.lists is CommandLists.OPEN

    def test_what_is_never_listed_again_is_handed_out_once(self, serve):  # noqa: F811
        server = Strict()
        life = Life(serve, server)
        for number in range(3):
            server.records = [{**RECORDS[0], "id": f"c{number}"}]
            assert life.ids() == [f"c{number}"]
            server.records = []
            assert life.ids() == []
        assert life.discovery.profile.lists is CommandLists.ONCE

    def test_a_page_that_is_missing_costs_none_that_came_and_takes_nothing_back(self, serve):  # noqa: F811
        server = Strict()
        life = Life(serve, server)

        def failing(method: str, target: str, headers: dict[str, str]) -> Answer:
            if "cursor=" in target:
                return Answer(503, {"error": "down"})
            if "commands" in target:
                return Answer(body={"data": RECORDS[:1], "next_cursor": "2"}, headers={"ETag": '"v1"'})
            return server(method, target, headers)

        server.server, client = serve(failing)
        life = Life(serve, server, client=client, dialect=Dialect(command_lists=CommandLists.OPEN))
        poll = life.source.poll(0)
        assert ([command.id for command in poll.commands], poll.is_whole) == (["c2"], False)
        life.source.acknowledge(["c2"])
        assert life.source.canceled(["c9"]) == frozenset()
        before = len(server.server.asked)
        with pytest.raises(ServerFault):
            life.source.poll(0)
        assert len(server.server.asked) == before
        assert not life.source.poll(0).unchanged

    def test_what_is_odd_about_a_list_is_said_once_and_kept(self, serve, caplog):  # noqa: F811
        records = [{"command_payload": {"command": "a"}, "created_at": "gestern"}]
        life = Life(serve, Strict(records=records))
        for _ in range(3):
            assert len(life.ids()) == 1
        assert len([each for each in caplog.messages if "commands=odd" in each]) == 2
        assert "writes times that cannot be read (created_at)" in life.words()
        assert "commands without an id" in life.restarted().words()

    def test_configured_as_open_what_left_the_list_was_taken_back(self, serve):  # noqa: F811
        server = Strict(records=[{**RECORDS[0], "status": "wartet"}])
        life = Life(serve, server, dialect=Dialect(command_lists=CommandLists.OPEN))
        [command] = life.source.poll(0).commands
        assert command.status == "queued"
        assert life.source.canceled(["c2", "c9"]) == frozenset({"c9"})

    @pytest.mark.parametrize("lists", [None, CommandLists.ONCE])
    def test_of_too_many_at_once_it_is_said_how_many_were_read_and_whether_the_others_are_lost(
        self,
        serve,  # noqa: F811
        lists,
        caplog,
    ):
        records = [{"id": f"c{number}", "command_payload": {}} for number in range(ITEMS_MAX + 5)]
        life = Life(serve, Strict(records=records), dialect=Dialect(command_lists=lists))
        assert len(life.ids()) == ITEMS_MAX
        assert f"lists more commands at once than are read ({ITEMS_MAX} of {ITEMS_MAX + 5} or more" in life.words()
        is_once = lists is CommandLists.ONCE
        assert ("the others are lost" in life.words()) is is_once
        assert any("commands=lost 5 or more" in each for each in caplog.messages) is is_once
        assert life.restarted(Dialect(command_lists=lists)).words() == life.words()


class TestFindings:
    def test_a_restart_keeps_what_was_withdrawn(self, serve):  # noqa: F811
        life = Life(serve, Strict(["command-status", "recorded-at"], refuses=("status", "recorded_at")))
        life.ids()
        life.uplink.send(stored(1))
        again = life.restarted()
        before = len(life.server.server.asked)
        again.ids()
        again.uplink.send(stored(2))
        assert len(life.server.server.asked) == before + 3  # the discovery document, the list, the reading
        assert again.discovery.profile == life.discovery.profile

    @pytest.mark.parametrize("change", [{"version": "2"}, {"announced": ["command-status", "recorded-at"]}])
    def test_another_version_or_other_extensions_begin_anew(self, serve, change):  # noqa: F811
        server = Strict(["command-status"], refuses=("status",))
        life = Life(serve, server)
        life.ids()
        server.refuses = ()
        for name, value in change.items():
            setattr(server, name, value)
        life.clock.advance(4000)
        life.discovery.offers("long-poll")
        assert not life.discovery.profile.withdrawn
        life.ids()
        assert "status=open" in server.server.asked[-1][1]

    def test_another_address_begins_anew(self, serve):  # noqa: F811
        life = Life(serve, Strict(["command-status"], refuses=("status",)))
        life.ids()
        with DeviceClient("http://127.0.0.1:1", None) as client:
            other = Discovery(client, life.clock, None, life.journal)
        assert not other.profile.withdrawn

    def test_findings_that_stay_the_same_are_written_once_and_said_once(self, serve, caplog):  # noqa: F811
        caplog.set_level(logging.INFO)
        life = Life(serve, Strict())
        written: list[str | None] = []
        put = life.journal.put_setting

        def counting(name: str, value: str | None) -> None:
            written.append(name)
            put(name, value)

        life.journal.put_setting = counting  # type: ignore[method-assign]
        for number in range(1, 6):
            life.ids()
            life.uplink.send(stored(number))
            life.clock.advance(4000)
        assert written == [SETTING]
        [line] = [each for each in caplog.messages if "server=found" in each]
        assert line == (
            "server=found this server: offers no extensions (a plain server), is sent results as records of table "
            "command_results, takes no recorded_at"
        )

    def test_what_is_known_stands_in_for_a_discovery_that_fails_after_a_restart(self, serve):  # noqa: F811
        server = Strict(["recorded-at"])
        life = Life(serve, server)
        life.uplink.send(stored(1))

        def failing(method: str, target: str, headers: dict[str, str]) -> Answer:
            return Answer(503) if "well-known" in target else server(method, target, headers)

        broken, client = serve(failing)
        life.discovery.note(address=broken.base_url)
        server.server = broken
        again = Life(serve, server, journal=life.journal, client=client)
        again.uplink.send(stored(2))
        assert "recorded_at" in server.taken[-1]


@pytest.mark.parametrize(
    ("announced", "dialect", "expected"),
    [
        (None, None, [None, "succeeded"]),
        (["long-poll"], None, [None, "succeeded"]),
        (["command-status"], None, ["queued", "succeeded"]),
        (None, Dialect(command_lists=CommandLists.OPEN), ["queued", "succeeded"]),
    ],
)
def test_a_word_for_an_open_command_counts_only_where_the_server_announces_what_it_means(
    serve,  # noqa: F811
    announced,
    dialect,
    expected,
):
    records = [
        {"id": status, "command_payload": {"command": "ping"}, "status": status} for status in ("queued", "succeeded")
    ]
    life = Life(serve, Strict(announced, records=records), dialect=dialect)
    assert [command.status for command in life.source.poll(0).commands] == expected
