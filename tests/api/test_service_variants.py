"""``/_emulator/accounts/{account}/variant``: every choice shows on the wire, and the specification holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from simulator.service.variant import CHOICES, COMPLETE, PLAIN, ServerVariant, name_of, read_variant
from tests.api.test_service_command_events import listening
from tests.support.service_running import Bench, client, running
from tests.support.variants import TRUTH, choices, outside, running_as, switch, values_of, variant

RESULTS = "command_results"


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """One service for all of them: the variant is switched."""
    with running_as(COMPLETE, rate_limit=0) as bench:
        yield bench


class World:
    """A device with seven commands, and one request for each thing that a choice may change."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.product_id = bench.product(metadata={"seen_at": "2026-01-01T00:00:00.000Z"})
        self.device_id = bench.device(self.product_id, identifier=f"SN-{self.product_id}")
        self.command_ids = [bench.send(self.device_id, f"do-{number}") for number in range(7)]
        self.commands = f"/devices/{self.device_id}/commands"
        self.reading = {"device_id": self.device_id, "sensor_data": {"t": 21.5}}

    def look(self, http: httpx.Client) -> dict[str, tuple[Any, ...]]:
        """What comes over the wire, by request; what differs between two equal runs is left out."""
        record = {
            "product_id": self.product_id,
            "device_id": self.device_id,
            "table_name": RESULTS,
            "data_payload": {"command_id": "1", "status": "succeeded"},
        }
        registration = {"user_id": "user-0001", "product_id": self.product_id, "device_identifier": "SN-x"}
        return {
            "discovery": shown(http.get("/.well-known/device-service")),
            "commands": shown(http.get(self.commands)),
            "commands again": shown(http.get(self.commands)),
            "poll": shown(http.get(self.commands, params={"status": "open"})),
            "unknown parameter": shown(http.get("/products", params={"colour": "red"})),
            "send": shown(http.post("/commands/send", json=self._command(ttl_seconds=60))),
            "unknown member": shown(http.post("/commands/send", json=self._command(colour="red"))),
            "reading": shown(http.post("/sensor-data", json=self.reading)),
            "reading, recorded_at": shown(
                http.post("/sensor-data", json={**self.reading, "recorded_at": "2026-01-01T00:00:00Z"})
            ),
            "result": shown(http.post(f"{self.commands}/{self.command_ids[0]}/result", json={"status": "in_progress"})),
            "table": shown(http.post("/database/runtime-data", json=record)),
            "register": shown(http.post("/onboarding/device", json=registration)),
            "wrong keys": shown(http.get("/products", headers={"x-secret-key": "msk_wrong"})),
            "no such device": shown(http.get("/devices/nobody/commands")),
            "no such path": shown(http.get("/nothing/here")),
        }

    def _command(self, **members: Any) -> dict[str, Any]:
        return {"device_id": self.device_id, "command_payload": {"command": "ping"}, **members}


IDS = ("id", "command_id", "_id", "uuid", "product_id", "device_id")


def shown(answer: httpx.Response) -> tuple[Any, ...]:
    """Status, headers and body without ids, cursors, dates and lengths."""
    unlike = {"x-request-id", "content-length", "location", "etag", "link", "date"}
    headers = {name: value for name, value in answer.headers.items() if name not in unlike}
    headers["date"] = answer.headers["date"][:11] + answer.headers["date"][16:19] if "date" in answer.headers else ""
    return answer.status_code, tuple(sorted(headers.items())), skeleton(answer)


def skeleton(answer: httpx.Response) -> str:
    """The shape of a body, and its values where they are no ids."""
    bom = "BOM " if answer.content.startswith(b"\xef\xbb\xbf") else ""
    try:
        value = json.loads(answer.content.decode("utf-8-sig"))
    except ValueError:
        return bom + answer.text
    return bom + json.dumps(blank(value))


def blank(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: blank(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [blank(inner) for inner in value]
    return type(value).__name__ if name in IDS or name in {"message", "device_identifier", "next_cursor"} else value


@pytest.fixture
def world(bench: Bench) -> Iterator[World]:
    """A device behind a service that is complete until the test says otherwise, and again afterwards."""
    switch(bench, COMPLETE)
    yield World(bench)
    switch(bench, COMPLETE)


@pytest.fixture(scope="module")
def base_looks() -> dict[str, dict[str, tuple[Any, ...]]]:
    """How the servers look that a choice is made otherwise in, each looked at once."""
    return {}


@pytest.mark.parametrize(("choice", "value"), list(choices()), ids=str)
def test_every_choice_shows_on_the_wire(
    bench: Bench, base_looks: dict[str, dict[str, tuple[Any, ...]]], choice: str, value: Any
) -> None:
    base: dict[str, Any] = {"page_size": 2} if choice == "paging" else {}
    if str(base) not in base_looks:
        base_looks[str(base)] = look_at(bench, variant(**base))
        assert base_looks[str(base)] == look_at(bench, variant(**base)), "two equal servers look alike"
    assert look_at(bench, variant(**{**base, choice: value})) != base_looks[str(base)], "this choice changes nothing"


def look_at(bench: Bench, wanted: ServerVariant) -> dict[str, tuple[Any, ...]]:
    """What a server with this variant sends, to a device of its own."""
    switch(bench, COMPLETE)
    world = World(bench)
    switch(bench, wanted)
    with outside(bench) as http:
        look = world.look(http)
        look["page headers"] = (http.get(world.commands).headers.get("link") is not None,)
    switch(bench, COMPLETE)
    return look


@pytest.mark.parametrize("wanted", [COMPLETE, PLAIN, *(variant(**{a: v}) for a, v in choices())], ids=str)
def test_the_specification_holds_in_every_variant(world: World, wanted: ServerVariant) -> None:
    check_specification(world, wanted)


_VARIANTS = st.fixed_dictionaries({}, optional={name: st.sampled_from(values_of(name)) for name in CHOICES})


@settings(max_examples=40, deadline=None)
@given(chosen=_VARIANTS)
def test_the_specification_holds_whatever_is_chosen_together(bench: Bench, chosen: dict[str, Any]) -> None:
    switch(bench, COMPLETE)
    check_specification(World(bench), variant(**chosen))
    switch(bench, COMPLETE)


def check_specification(world: World, wanted: ServerVariant) -> None:
    """What every server that keeps to the specification does, and that no request is answered with a 5xx."""
    bench = world.bench
    switch(bench, wanted)
    with outside(bench) as http:
        for headers in ({"x-api-key": bench.service.api_key}, {"x-secret-key": "msk_x"}, {}):
            bare = httpx.get(f"{bench.service.base_url}/products", headers=headers, trust_env=False)
            assert bare.status_code == 401
            if wanted.error_shape == "complete":
                body = json.loads(bare.content.decode("utf-8-sig"))
                assert "x-api-key" in body["message"]
                assert "x-secret-key" in body["message"]
        assert http.get("/nothing").status_code == 404
        assert http.get("/devices/nobody/commands").status_code == 404
        made = http.post("/products", json={"name": "A door", "category": "doors"})
        assert made.status_code in {200, 201, 202}
        assert json.loads(made.content.decode("utf-8-sig"))["product_id"]
        assert http.post("/sensor-data", json=world.reading).is_success
        sent = {"device_id": world.device_id, "command_payload": {"command": "ping"}}
        assert http.post("/commands/send", json=sent).is_success
        for path in ("/products", "/devices", world.commands, "/sensor-data", "/database/runtime-data", "/rules"):
            answer = http.get(path)
            assert answer.status_code == 200, (path, answer.text)
            json.loads(answer.content.decode("utf-8-sig"))
        stored = bench.http.get("/sensor-data", params={"device_id": world.device_id}).json()["data"]
        assert [one["sensor_data"] for one in stored] == [world.reading["sensor_data"]]
        for name, (status, *_) in world.look(http).items():
            assert status < 500, (name, wanted)
        assert http.get(world.commands, params={"page": "2", "limit": "2"}).status_code < 500


def follow(http: httpx.Client, path: str, paging: str) -> list[str]:
    """Every command's id, page by page, as a client of that server would go on."""
    found: list[str] = []
    asked: set[str] = set()
    url, query = path, {}
    for _ in range(20):
        answer = http.get(url, params=query or None)
        assert answer.status_code == 200, answer.text
        assert str(answer.request.url) not in asked, "a client takes the same page again for the end, or for a fault"
        asked.add(str(answer.request.url))
        body = answer.json()
        is_bare = isinstance(body, list)
        found += [one["id"] for one in (body if is_bare else body["data"])]
        if (is_bare or paging == "link_header") and "next" in answer.links:
            url, query = answer.links["next"]["url"], {}
        elif is_bare:
            return found
        elif paging in {"cursor", "complete"} and body.get("next_cursor"):
            query = {"cursor": body["next_cursor"]}
        elif paging == "next_url" and body["next"]:
            url = body["next"]
        elif paging == "page_number" and body["page"] < body["total_pages"]:
            query = {"page": body["page"] + 1}
        elif paging == "offset" and body["offset"] + len(body["data"]) < body["total"]:
            query = {"offset": body["offset"] + len(body["data"])}
        else:
            return found
    raise AssertionError("the pages have no end")


@pytest.mark.parametrize("command_list", ["everything", "open", "once"])
@pytest.mark.parametrize("paging", values_of("paging"))
@pytest.mark.parametrize("list_shape", ["data", "bare"])
def test_every_way_of_paging_leads_through_the_whole_list(
    world: World, list_shape: str, paging: str, command_list: str
) -> None:
    way = {"paging": paging, "page_size": 3, "list_shape": list_shape}
    switch(world.bench, variant("plain", command_list=command_list, **way))
    with outside(world.bench) as http:
        assert follow(http, world.commands, paging) == world.command_ids[::-1]
        assert follow(http, world.commands, paging) == ([] if command_list == "once" else world.command_ids[::-1])


def test_a_command_is_handed_out_once_and_stays_so_after_a_restart(tmp_path: Path) -> None:
    keys = {"api_key": "mk_test", "secret_key": Secret("msk_test")}
    with running_as(variant("plain", command_list="once"), data_dir=tmp_path, **keys) as bench:
        world = World(bench)
        with outside(bench) as http:
            assert len(http.get(world.commands).json()["data"]) == 7
    with running(data_dir=tmp_path, **keys) as bench, outside(bench) as http:
        assert http.get(world.commands).json()["data"] == []
        assert http.get("/.well-known/device-service").status_code == 404
        statuses = {one["status"] for one in bench.http.get(world.commands, headers=TRUTH).json()["data"]}
        assert statuses == {"delivered"}


@pytest.mark.parametrize("results", ["table", "none"])
def test_a_server_without_the_endpoint_of_results_has_none_and_perhaps_no_table(world: World, results: str) -> None:
    record = {"product_id": world.product_id, "device_id": world.device_id, "table_name": RESULTS}
    record |= {"data_payload": {"command_id": "1", "status": "succeeded"}}
    switch(world.bench, variant(results=results))
    with outside(world.bench) as http:
        path = f"{world.commands}/{world.command_ids[0]}/result"
        assert http.post(path, json={"status": "succeeded"}).status_code == 404
        assert "command-results" not in http.get("/.well-known/device-service").json()["extensions"]
        stored = http.post("/database/runtime-data", json=record)
        listed = http.get("/database/runtime-data", params={"table_name": RESULTS})
        assert (stored.status_code, listed.status_code) == ((201, 200) if results == "table" else (404, 404))
    assert world.bench.command(world.device_id, world.command_ids[0])["status"] == "queued"


def test_a_variant_is_switched_while_the_service_runs(bench: Bench) -> None:
    path = f"/_emulator/accounts/{bench.service.api_key}/variant"
    assert bench.http.put(path, json={"base": "plain", "list_shape": "bare"}).json()["extensions"] is False
    changed = bench.http.put(path, json={"base": "plain", "list_shape": "bare", "id_name": "_id"}).json()
    assert (changed["list_shape"], changed["id_name"], changed["extensions"]) == ("bare", "_id", False)
    with outside(bench) as http:
        assert isinstance(http.get("/products").json(), list)
        refused = http.get("/products", headers={"x-emulator-variant": "plain"})
        assert refused.status_code == 400, "a look past the variant says complete and nothing else"
        assert bench.http.put(path, json={}).json() == json.loads(COMPLETE.model_dump_json())
        assert isinstance(http.get("/products").json(), dict)


def test_a_wrong_variant_names_choice_and_values(bench: Bench) -> None:
    path = f"/_emulator/accounts/{bench.service.api_key}/variant"
    answer = bench.http.put(path, json={"list_shap": "bare", "id_name": "_idd", "page_size": 0, "base": "plan"})
    assert answer.status_code == 400
    issues = {one["field"]: one["issue"] for one in answer.json()["details"]}
    assert issues["list_shap"] == "unknown member"
    for field, names in (("id_name", "uuid"), ("page_size", "1"), ("base", "plain")):
        assert names in issues[field]
    assert bench.http.get(path).json() == json.loads(COMPLETE.model_dump_json())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plane", "did you mean 'plain'?"),
        ("id_nam=_id", "id_nam: there is no such choice (did you mean 'id_name'?)"),
        ("list_shape=array", "list_shape: Input should be 'data', 'bare', 'items'"),
        ("page_size=many", "page_size: Input should be a valid integer"),
        ("paging=none,bare", "bare: must be choice=value"),
        ("missing.yaml", "cannot be read"),
    ],
)
def test_a_wrong_text_names_the_choice_and_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_variant(["plain", text])
    (fault,) = caught.value.faults
    assert fault.startswith(f"--variant {text}: ")
    assert said in fault


def test_texts_change_what_the_ones_before_said(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("base: plain\nid_name: uuid\npaging: offset\n", encoding="utf-8")
    read = read_variant([str(file), "list_shape=bare,page_size=7"])
    assert read == variant("plain", id_name="uuid", list_shape="bare", page_size=7, paging="offset")
    assert read_variant([name_of(read)]) == read
    assert (name_of(COMPLETE), name_of(PLAIN)) == ("complete", "plain")


def test_times_are_written_in_the_variants_form_and_payloads_are_not(world: World) -> None:
    payload = {"command": "at", "start_at": "2026-01-01T00:00:00.000Z"}
    body = {"device_id": world.device_id, "command_payload": payload}
    for time_format, written in (
        ("rfc3339", "2026-01-01T00:00:00.000Z"),
        ("offset", "2026-01-01T00:00:00.000+00:00"),
        ("epoch_s", 1_767_225_600),
        ("epoch_ms", 1_767_225_600_000),
        ("naive", "2026-01-01T00:00:00.000"),
    ):
        switch(world.bench, variant(time_format=time_format))
        with outside(world.bench) as http:
            sent = http.post("/commands/send", json=body).json()
            listed = http.get(world.commands).json()["data"][0]
        assert sent["created_at"] == listed["created_at"] == written
        assert listed["command_payload"] == payload
        assert listed["completed_at"] is None


@pytest.mark.parametrize("list_shape", values_of("list_shape"))
def test_lists_have_the_variants_shape(world: World, list_shape: str) -> None:
    member = {"named": "commands"}.get(list_shape, list_shape)
    for paging in values_of("paging"):
        switch(world.bench, variant(list_shape=list_shape, paging=paging))
        with outside(world.bench) as http:
            body = http.get(world.commands).json()
        listed = body if list_shape == "bare" else body[member]
        assert [one["id"] for one in listed] == world.command_ids[::-1], paging


def test_a_number_as_id_takes_a_result(world: World) -> None:
    switch(world.bench, variant(id_type="integer", id_name="command_id", status_words="own"))
    with outside(world.bench) as http:
        numbers = [one["command_id"] for one in http.get(world.commands).json()["data"]]
        assert all(isinstance(number, int) for number in numbers)
        done = http.post(f"{world.commands}/{numbers[-1]}/result", json={"status": "succeeded"})
        assert done.status_code == 200
        assert (done.json()["status"], done.json()["command_id"]) == ("DONE", numbers[-1])
        none = http.post(f"{world.commands}/{max(numbers) + 1}/result", json={"status": "succeeded"})
        assert none.status_code == 404
    assert world.bench.command(world.device_id, world.command_ids[0])["status"] == "succeeded"


def test_a_command_is_written_in_the_stream_of_events_as_in_the_list(world: World) -> None:
    for chosen in (
        {"id_name": "uuid", "time_format": "naive"},
        {"id_name": "none", "status_words": "own"},
        {"id_name": "command_id", "id_type": "integer", "time_format": "epoch_s"},
    ):
        switch(world.bench, variant(**chosen))
        with outside(world.bench) as http, listening(http) as stream:
            command_id = world.bench.send(world.device_id)
            event_id, record = stream.next()
            assert event_id == command_id
            assert record == http.get(world.commands).json()["data"][0]


def test_accounts_are_apart() -> None:
    with running_as(COMPLETE) as bench:
        other = bench.add_account("other")
        switch(bench, PLAIN, other.api_key)
        with outside(bench) as mine, client(bench.service, other.api_key, other.secret_key) as theirs:
            for http, discovery, unknown in ((mine, 200, 400), (theirs, 404, 200)):
                assert http.get("/.well-known/device-service").status_code == discovery
                assert http.get("/products", params={"colour": "red"}).status_code == unknown
        path = f"/_emulator/accounts/{other.api_key}/variant"
        assert bench.http.get(path).json() == json.loads(PLAIN.model_dump_json())
        assert bench.http.get("/_emulator/accounts/nobody/variant").status_code == 404
        bench.http.post("/_emulator/reset")
        assert bench.http.get(path).json() == json.loads(PLAIN.model_dump_json()), "a reset keeps accounts as they are"
