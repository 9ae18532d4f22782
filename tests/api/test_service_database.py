"""Product databases and dashboards over a real socket: shapes, types, filters, paging, what is refused."""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.api.golden_bodies import RECORD, SCHEMA, TABLE, C, D, P, golden
from tests.api.test_service_golden import Exchange
from tests.support.service_running import running

INJECTION = "'; DROP TABLE runtime_records; -- \" ') OR 1=1 %_\\"

_names = (f"table{n}" for n in itertools.count())


@pytest.fixture(scope="module")
def bench():
    with running() as bench:
        yield bench


@pytest.fixture(scope="module")
def place(bench):
    """A product, its device and a schema of it."""
    product_id = bench.product()
    schema = bench.http.post(f"/products/{product_id}/database/schemas", json={"name": "operations"}).json()
    return product_id, bench.device(product_id), schema["schema_id"]


def _table(bench, place, *columns):
    name = next(_names)
    body = {"schema_id": place[2], "table_name": name, "columns": list(columns)}
    answer = bench.http.post("/database/tables", json=body)
    assert answer.status_code == 201, answer.text
    return name


def _post(bench, place, table, data, **members):
    body = {"product_id": place[0], "device_id": place[1], "table_name": table, "data_payload": data, **members}
    return bench.http.post("/database/runtime-data", json=body)


def _found(bench, place, table_name, **query):
    answer = bench.http.get("/database/runtime-data", params={"table_name": table_name, **query})
    assert answer.status_code == 200, answer.text
    return [record["data_payload"] for record in answer.json()["data"]]


# --- the golden bodies ------------------------------------------------------------------------------------------


@pytest.fixture
def exchange():
    with running() as bench:
        exchange = Exchange(bench)
        exchange.learn(P, exchange.run("create a product"), "product_id")
        exchange.learn(D, exchange.run("register a device"), "device_id")
        yield exchange


def test_dashboards_answer_the_golden_bodies(exchange):
    exchange.expect("read a dashboard")
    exchange.expect("replace a dashboard")
    exchange.expect("read a dashboard", "dashboard")


def test_databases_answer_the_golden_bodies(exchange):
    made = exchange.run("create a schema")
    exchange.learn(SCHEMA, made, "schema_id")
    assert exchange.seen(made) == golden("schema")
    exchange.expect("list schemas")
    table = exchange.run("create a table")
    exchange.learn(TABLE, table, "table_id")
    assert exchange.seen(table) == golden("table")
    record = exchange.run("create a runtime record")
    exchange.learn(RECORD, record, "id")
    assert exchange.seen(record) == golden("runtime_record")
    exchange.expect("list runtime data")
    exchange.bench.clock.advance(1.25)
    exchange.expect("replace a runtime record")
    exchange.run("delete a runtime record")
    assert exchange.run("list runtime data")["data"] == []


def test_every_product_takes_results_as_a_plain_server_does(exchange):
    exchange.bench.clock.advance(2.5)
    stored = exchange.run("report a result to a plain server")
    exchange.learn(RECORD, stored, "id")
    assert exchange.seen(stored) == golden("command_result_runtime_record")
    query = {"product_id": exchange.ids[P], "table_name": "command_results", "data.command_id": C}
    assert len(exchange.bench.http.get("/database/runtime-data", params=query).json()["data"]) == 1
    taken = {"schema_id": exchange.run("create a schema")["schema_id"], "table_name": "command_results"}
    again = exchange.bench.http.post("/database/tables", json={**taken, "columns": [{"name": "x", "type": "json"}]})
    assert (again.status_code, again.json()["error"]) == (409, "table_exists")


# --- dashboards -------------------------------------------------------------------------------------------------


def test_a_dashboard_that_was_read_can_be_put_back(bench):
    path = f"/products/{bench.product()}/dashboard"
    first = bench.http.get(path).json()
    put = bench.http.put(path, json=first)
    assert put.status_code == 200
    assert put.json() == {**first, "updated_at": put.json()["updated_at"]}
    assert put.json()["updated_at"] is not None
    assert bench.http.put(path, json={**put.json(), "name": "a"}).json()["name"] == "a"
    assert bench.http.put(path, json={"widgets": []}).json()["name"] is None  # replaced, not changed


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body"),
        ({"product_id": "x"}, "body"),
        ({"widgets": [{"id": "a", "type": "x"}, {"id": "a", "type": "x"}]}, "widgets.1.id"),
        (
            {"widgets": [{"id": "a", "type": "x", "position": {"x": -1, "y": 0, "w": 1, "h": 1}}]},
            "widgets.0.position.x",
        ),
    ],
)
def test_a_dashboard_that_is_none_is_400_and_names_the_member(bench, place, body, field):
    answer = bench.http.put(f"/products/{place[0]}/dashboard", json=body)
    assert answer.status_code == 400
    assert field in [detail["field"] for detail in answer.json()["details"]]


# --- schemas and tables -----------------------------------------------------------------------------------------


def test_a_created_schema_is_found_where_its_location_says(bench, place):
    path = f"/products/{place[0]}/database/schemas"
    made = bench.http.post(path, json={"name": INJECTION})
    assert made.status_code == 201
    assert bench.http.get(made.headers["location"]).json()["data"] == [made.json()]
    again = bench.http.post(path, json={"name": INJECTION})
    assert (again.status_code, again.json()["error"]) == (409, "schema_exists")
    other = bench.product()
    assert bench.http.post(f"/products/{other}/database/schemas", json={"name": INJECTION}).status_code == 201


def test_a_tables_name_is_taken_once_in_a_product_and_its_location_lists_its_records(bench, place):
    column = {"name": "a", "type": "string"}
    body = {"schema_id": place[2], "table_name": "once/ä b", "columns": [column]}
    made = bench.http.post("/database/tables", json=body)
    assert made.status_code == 201
    stored = _post(bench, place, "once/ä b", {"a": "x"})
    assert bench.http.get(made.headers["location"]).json()["data"] == [stored.json()]
    path = f"/products/{place[0]}/database/schemas"
    second = bench.http.post(path, json={"name": "second"}).json()["schema_id"]
    for schema_id in (place[2], second):
        again = bench.http.post("/database/tables", json={**body, "schema_id": schema_id})
        assert (again.status_code, again.json()["error"]) == (409, "table_exists")
    unknown = bench.http.post("/database/tables", json={**body, "schema_id": "none"})
    assert (unknown.status_code, unknown.json()["error"]) == (404, "schema_not_found")


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ([{"name": "a", "type": "uuid"}], "columns.0.type"),
        ([{"name": "a" * 256, "type": "string"}], "columns.0.name"),
        ([{"name": "a", "type": "json"}, {"name": "a", "type": "string"}], "columns.1.name"),
        ([{"name": "a", "type": "integer", "default": 1.5}], "columns.0.default"),
        ([{"name": "a", "type": "integer", "default": True}], "columns.0.default"),
        ([{"name": "a", "type": "boolean", "default": 0}], "columns.0.default"),
        ([{"name": "a", "type": "datetime", "default": "noon"}], "columns.0.default"),
        ([{"name": "a", "type": "string", "unique": True}], "columns.0.unique"),
    ],
)
def test_columns_that_cannot_be_are_named(bench, place, columns, field):
    body = {"schema_id": place[2], "table_name": next(_names), "columns": columns}
    answer = bench.http.post("/database/tables", json=body)
    assert answer.status_code == 400, answer.text
    assert field in [detail["field"] for detail in answer.json()["details"]]


# --- runtime data -----------------------------------------------------------------------------------------------


def test_every_column_that_does_not_fit_is_named_at_once(bench, place):
    table = _table(
        bench,
        place,
        {"name": "s", "type": "string", "required": True},
        {"name": "n", "type": "number"},
        {"name": "i", "type": "integer"},
        {"name": "b", "type": "boolean"},
        {"name": "t", "type": "datetime"},
    )
    answer = _post(bench, place, table, {"n": "1", "i": 1.5, "b": 1, "t": "2026-13-01T00:00:00Z", "x": 1})
    assert answer.status_code == 400
    assert answer.json()["error"] == "validation_error"
    named = {detail["field"] for detail in answer.json()["details"]}
    assert named == {f"data_payload.{name}" for name in "snibtx"}
    assert _found(bench, place, table) == []


def test_required_defaults_null_and_times(bench, place):
    table = _table(
        bench,
        place,
        {"name": "s", "type": "string", "required": True, "default": "as always"},
        {"name": "t", "type": "datetime", "default": 1_767_225_600_000},
        {"name": "j", "type": "json"},
    )
    at = "2026-01-01T00:00:00.000Z"
    assert _post(bench, place, table, {}).json()["data_payload"] == {"s": "as always", "t": at}
    shifted = _post(bench, place, table, {"t": "2026-01-01T02:00:00.0004+02:00", "j": None}).json()["data_payload"]
    assert shifted == {"s": "as always", "t": at, "j": None}
    assert _post(bench, place, table, {"s": None}).status_code == 400
    assert _post(bench, place, table, {"t": None}).json()["data_payload"]["t"] is None
    assert len(_found(bench, place, table, **{"data.t": "1767225600000"})) == 2


def test_what_a_record_names_must_be_there(bench, place):
    for members, error in (
        ({"product_id": "none"}, "product_not_found"),
        ({"device_id": "none"}, "device_not_found"),
        ({"table_name": "none"}, "table_not_found"),
    ):
        answer = _post(bench, place, "command_results", {"command_id": "c", "status": "failed"}, **members)
        assert (answer.status_code, answer.json()["error"]) == (404, error)
    elsewhere = bench.device(bench.product(), identifier="elsewhere")
    answer = _post(bench, place, "command_results", {"command_id": "c", "status": "failed"}, device_id=elsewhere)
    assert (answer.status_code, answer.json()["details"][0]["field"]) == (400, "device_id")
    for method in ("PUT", "DELETE"):
        body = {"data_payload": {}} if method == "PUT" else None
        answer = bench.http.request(method, "/database/runtime-data/none", json=body)
        assert (answer.status_code, answer.json()["error"]) == (404, "record_not_found")


def test_a_filter_matches_by_meaning(bench, place):
    table = _table(bench, place, *({"name": name, "type": "json"} for name in ("v", "data.v", INJECTION)))
    values = ["1", 1, 1.0, True, "true", None, {"a": 1}, [1], "", INJECTION, 0.1, -0.0, 2**63 - 1, "é"]
    for value in values:
        _post(bench, place, table, {"v": value, "data.v": "x", INJECTION: "y"})

    def found(**query):
        return sorted(json.dumps(data["v"]) for data in _found(bench, place, table, **query))

    assert found(**{"data.v": "1"}) == ['"1"', "1", "1.0"]
    assert found(**{"data.v": "1e0"}) == ["1", "1.0"]
    assert found(**{"data.v": "true"}) == ['"true"', "true"]
    assert found(**{"data.v": "null"}) == ["null"]
    assert found(**{"data.v": ""}) == ['""']
    assert found(**{"data.v": "0"}) == ["-0.0"]
    assert found(**{"data.v": "0.10"}) == ["0.1"]
    assert found(**{"data.v": str(2**63 - 1)}) == [str(2**63 - 1)]
    assert found(**{"data.v": str(2**63)}) == []
    assert found(**{"data.v": "é"}) == [json.dumps("é")]
    assert found(**{"data.v": INJECTION}) == [json.dumps(INJECTION)]
    assert found(**{"data.v": "1", "data.data.v": "z"}) == []
    assert len(found(**{"data.data.v": "x", f"data.{INJECTION}": "y"})) == len(values)


def test_filters_narrow_and_unknown_ones_are_refused(bench, place):
    table = _table(bench, place, {"name": "v", "type": "integer"})
    other = bench.device(place[0], identifier="a second one")
    for value in (1, 2):
        _post(bench, place, table, {"v": value})
    _post(bench, place, table, {"v": 1}, device_id=other)
    assert len(_found(bench, place, table, product_id=place[0])) == 3
    assert _found(bench, place, table, device_id=other) == [{"v": 1}]
    assert _found(bench, place, table, device_id=place[1], order="asc") == [{"v": 1}, {"v": 2}]
    assert len(_found(bench, place, table, **{"data.v": "1"})) == 2
    cursor = bench.http.get(f"/database/runtime-data?table_name={table}&limit=1").json()["next_cursor"]
    for query, status, error in (
        ({"product_id": "none"}, 404, "product_not_found"),
        ({"device_id": "none"}, 404, "device_not_found"),
        ({"table_name": "none"}, 404, "table_not_found"),
        ({"table_name": table, "data.none": "1"}, 400, "validation_error"),
        ({"data.": "1"}, 400, "validation_error"),
        ({"data": "1"}, 400, "validation_error"),
        ({"column": "1"}, 400, "validation_error"),
        ({"data.v\0": "1"}, 400, "validation_error"),
        ({"data.v": "\0"}, 400, "validation_error"),
        ({"table_name": table, "data.v": "2", "cursor": cursor}, 400, "validation_error"),
    ):
        answer = bench.http.get("/database/runtime-data", params=query)
        assert (answer.status_code, answer.json()["error"]) == (status, error), query


def test_a_replaced_record_is_found_by_its_new_values_only(bench, place):
    table = _table(bench, place, {"name": "v", "type": "string"}, {"name": "n", "type": "integer", "default": 5})
    record_id = _post(bench, place, table, {"v": "old", "n": 6}).json()["id"]
    path = f"/database/runtime-data/{record_id}"
    assert bench.http.put(path, json={"data_payload": {"v": 7}}).status_code == 400
    assert _found(bench, place, table, **{"data.v": "old"}) == [{"v": "old", "n": 6}]
    assert bench.http.put(path, json={"data_payload": {"v": "new"}}).json()["data_payload"] == {"v": "new", "n": 5}
    assert _found(bench, place, table, **{"data.v": "old"}) == []
    assert _found(bench, place, table, **{"data.v": "new", "data.n": "5"}) == [{"v": "new", "n": 5}]


def test_many_at_once_make_one_schema(bench):
    path = f"/products/{bench.product()}/database/schemas"
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda _: bench.http.post(path, json={"name": "race"}).status_code, range(16)))
    assert sorted(statuses) == [201] + [409] * 15


def test_a_deleted_product_takes_its_database_with_it(bench):
    product_id = bench.product()
    device_id = bench.device(product_id, identifier="goes away")
    place = (product_id, device_id, None)
    record_id = _post(bench, place, "command_results", {"command_id": "gone", "status": "failed"}).json()["id"]
    bench.http.put(f"/products/{product_id}/dashboard", json={"name": "x"})
    assert bench.http.delete(f"/onboarding/device/{device_id}").status_code == 204
    kept = bench.http.get("/database/runtime-data", params={"product_id": product_id}).json()["data"]
    assert [record["id"] for record in kept] == [record_id]  # a removed device leaves its records
    assert bench.http.delete(f"/products/{product_id}").status_code == 204
    assert bench.http.delete(f"/database/runtime-data/{record_id}").status_code == 404
    assert bench.http.get(f"/products/{product_id}/dashboard").status_code == 404
    assert bench.http.get("/database/runtime-data", params={"data.command_id": "gone"}).json()["data"] == []
