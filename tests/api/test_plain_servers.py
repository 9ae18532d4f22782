"""Servers that choose otherwise, and what the agent's HTTP side does with them: nothing is lost, and what was found out
is kept."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from agent.core.values import Report
from agent.errors import Forbidden, NoPlaceForResults, NotFound, Refused, ServerFault
from agent.store.journal import Journal
from agent.transports.http import Discovery, HttpDevice
from agent.wire.answers import ITEMS_MAX
from agent.wire.client import DeviceClient
from agent.wire.server import PROFILE_SETTING, CommandLists, Dialect, ResultPlace, describe
from tests.api.test_command_source_port import RECORDS, Answer, ScriptedServer, serve  # noqa: F401 - a fixture
from tests.api.test_uplink_port import stored
from tests.support.fakes import FakeClock, StoreInMemory

Serve = Callable[..., tuple[ScriptedServer, Any]]


class Strict:
    """A server that refuses what it does not know.

    Args:
        announced: its discovery document's extensions; None has no such path.
        refuses: what it refuses for all that: query parameters, body members, headers, ``array`` and paths.
        status: how it refuses.
    """

    def __init__(
        self,
        announced: list[str] | None = None,
        *,
        refuses: tuple[str, ...] = (),
        status: int = 400,
        records: list[dict[str, Any]] | None = None,
        etag: str = "",
    ) -> None:
        self.announced = announced
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
            known = {"extensions": self.announced}
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
        journal: Journal | None = None,
        dialect: Dialect | None = None,
        product_id: str | None = "p1",
        client: Any = None,
    ) -> None:
        if client is None:
            server.server, client = serve(server)
        self.server, self.client = server, client
        self.journal = StoreInMemory().journal if journal is None else journal
        self.clock = FakeClock()
        client.dialect = dialect or Dialect()
        self.discovery = Discovery(client, self.clock, self.journal)
        self.source = self.uplink = HttpDevice(client, "d1", self.discovery, product_id=product_id)

    def restarted(self, dialect: Dialect | None = None) -> Life:
        return Life(None, self.server, journal=self.journal, dialect=dialect, client=self.client)  # type: ignore[arg-type]

    def ids(self) -> list[str]:
        return [command.id for command in self.source.poll(0).commands]

    def words(self) -> str:
        return ", ".join(describe(self.discovery.profile, self.client.dialect))


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


class TestAnnounced:
    def test_a_device_that_is_gone_is_told(self, serve):  # noqa: F811
        life = Life(serve, Strict(["command-status"], refuses=("/devices/",), status=404))
        with pytest.raises(NotFound):
            life.source.poll(0)


class TestResults:
    @pytest.mark.parametrize(
        ("status", "error"), [(404, NotFound), (403, Forbidden), (405, Refused), (400, Refused), (500, ServerFault)]
    )
    def test_a_table_that_takes_none_is_told_each_time_and_tried_again(self, serve, status, error):  # noqa: F811
        server = Strict()
        server.table = Answer(status, {"error": "no"})
        life = Life(serve, server)
        life.ids()
        for _ in range(3):
            with pytest.raises(error):
                life.uplink.report(Report("c1", "succeeded"))
        server.table = Answer(201, {})
        life.uplink.report(Report("c1", "succeeded"))

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


class TestLists:
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
        assert "cannot be read as a time ('gestern')" in life.words()
        assert "commands come without an id" in life.words()
        assert "commands come without an id" not in life.restarted().words()

    def test_configured_as_open_what_left_the_list_was_taken_back(self, serve):  # noqa: F811
        server = Strict(records=[{**RECORDS[0], "status": "wartet"}])
        life = Life(serve, server, dialect=Dialect(command_lists=CommandLists.OPEN))
        [command] = life.source.poll(0).commands
        assert command.status == "queued"
        assert life.source.canceled(["c2", "c9"]) == frozenset({"c9"})

    def test_of_too_many_at_once_it_is_said_how_many_were_read(self, serve):  # noqa: F811
        records = [{"id": f"c{number}", "command_payload": {}} for number in range(ITEMS_MAX + 5)]
        life = Life(serve, Strict(records=records))
        assert len(life.ids()) == ITEMS_MAX
        assert f"of one list {ITEMS_MAX} commands were read, and 5 or more were not" in life.words()


class TestFindings:
    def test_other_extensions_begin_anew(self, serve):  # noqa: F811
        server = Strict([])
        life = Life(serve, server)
        life.ids()
        life.discovery.note("odd", "it was seen")
        server.announced = ["recorded-at"]
        life.clock.advance(4000)
        assert life.discovery.offers("recorded-at")
        assert not life.discovery.profile.notes

    def test_another_address_begins_anew(self, serve):  # noqa: F811
        life = Life(serve, Strict(["command-status"]))
        life.ids()
        with DeviceClient("http://127.0.0.1:1", None) as client:
            other = Discovery(client, life.clock, life.journal)
        assert not other.profile.was_asked

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
        assert written == [PROFILE_SETTING]
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
        profile = replace(life.discovery.profile, address=broken.base_url)
        life.journal.put_setting(PROFILE_SETTING, profile.to_json())
        server.server = broken
        again = Life(serve, server, journal=life.journal, client=client)
        again.uplink.send(stored(2))
        assert "recorded_at" in server.taken[-1]
