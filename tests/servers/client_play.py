"""The typed client as a consumer: every call for the specification's endpoints, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from agent.errors import Forbidden, NotFound, ServiceError, Unauthorized, UnexpectedAnswer
from agent.wire.auth import KeyPair
from agent.wire.extensions import ALL, LIST_PARAMETERS
from agent.wire.registration import RegisterDevice
from agent.wire.runtime_data import NewRuntimeRecord
from agent.wire.secret import Secret
from agent.wire.sending import SendCommand
from agent.wire.sensor_data import PostSensorData
from simulator.wire.client import ServiceClient
from simulator.wire.dashboards import NewDashboard
from simulator.wire.database import NewColumn, NewSchema, NewTable
from simulator.wire.products import NewProduct, ProductChange
from tests.servers.accounts import Account, key_pair
from tests.servers.expectations import Expectations

COUNT = 6
"""Of each kind of thing: with pages of one or five, lists have several."""


def play_client(account: Account, wanted: Expectations) -> list[str]:
    """Each call once or more; what was wrong, empty when nothing was."""
    checks = _Checks(wanted)
    with ServiceClient(account.front.url, key_pair(account)) as client:
        checks.equal("discover", client.discover() & ALL, wanted.offers)
        product_id, device_id = account.product_id, account.device()
        checks.section("products", lambda: _products(client, checks))
        checks.section("onboarding", lambda: _onboarding(client, checks, product_id))
        checks.section("commands", lambda: _commands(client, checks, device_id))
        checks.section("readings", lambda: _readings(client, account, checks, device_id))
        checks.section("database", lambda: _database(client, checks, product_id, device_id))
        checks.section("errors", lambda: _errors(client, checks))
    stranger = KeyPair(account.api_key, Secret("msk_nobody_has_this"))
    with ServiceClient(account.front.url, stranger) as client:
        # A page with 403, which the specification does not have, may be a captive portal's.
        refusals = (Unauthorized, Forbidden)
        checks.raises("wrong keys", refusals, lambda: list(client.devices()))
    return checks.problems


class _Checks:
    def __init__(self, wanted: Expectations) -> None:
        self.problems: list[str] = []
        self.reads_whole_lists = wanted.reads_whole_lists
        self.leads_elsewhere = wanted.leads_elsewhere
        self.filters = LIST_PARAMETERS in wanted.offers

    def section(self, name: str, play: Callable[[], None]) -> None:
        """Some calls; an error ends these, and not the others."""
        try:
            play()
        except ServiceError as error:
            if self.leads_elsewhere and isinstance(error, UnexpectedAnswer) and "is not followed" in str(error):
                return
            self.problems.append(f"{name}: {type(error).__name__}: {error}")

    def equal(self, what: str, found: Any, expected: Any) -> None:
        if found != expected:
            self.problems.append(f"{what}: {_short(found)} instead of {_short(expected)}")

    def lists(self, what: str, found: Iterable[Any], expected: Iterable[Any]) -> None:
        """The list holds these, each once; where the rest is on another host, some of them."""
        found, expected = sorted(found), sorted(expected)
        if self.reads_whole_lists:
            self.equal(what, found, expected)
        elif len(set(found)) != len(found) or not set(found) <= set(expected):
            self.problems.append(f"{what}: {_short(found)} is no part of {_short(expected)}")

    def raises(self, what: str, kinds: tuple[type[ServiceError], ...], call: Any) -> None:
        try:
            call()
        except kinds:
            return
        except ServiceError as error:
            self.problems.append(f"{what}: raised {type(error).__name__}: {error}")
        else:
            self.problems.append(f"{what}: raised nothing")


def _products(client: ServiceClient, checks: _Checks) -> None:
    before = [product.product_id for product in client.products()]
    made = [client.create_product(NewProduct(name=f"P{number}")).product_id for number in range(COUNT)]
    checks.equal("products made have ids of their own", len({*before, *made} - {""}), len(before) + COUNT)
    if checks.reads_whole_lists:
        checks.lists("products", [product.product_id for product in client.products()], [*before, *made])
    words: Any = [{"name": f"word-{number}"} for number in range(COUNT)]
    client.change_product(made[0], ProductChange(model="M2", commands=words))
    changed = [product.model for product in client.products() if product.product_id == made[0]]
    checks.lists("change_product", [model or "" for model in changed], ["M2"])
    names = [word.name for word in client.product_commands(made[0])]
    checks.lists("product_commands", names, [word["name"] for word in words])
    client.put_dashboard(made[0], NewDashboard(name="Board"))
    checks.equal("dashboard", client.dashboard(made[0]).name, "Board")
    client.delete_product(made[1])
    checks.lists("delete_product", {made[1]} & {product.product_id for product in client.products()}, [])


def _onboarding(client: ServiceClient, checks: _Checks, product_id: str) -> None:
    user_id = f"user-of-{product_id}"
    for number in range(COUNT):
        label = f'{{"v":1,"product_id":"{product_id}","device_identifier":"C-{number}"}}'
        scanned = client.scan_qr(label)
        checks.equal("scan_qr", scanned.device_identifier, f"C-{number}")
        registration = RegisterDevice(
            user_id=user_id,
            product_id=product_id,
            device_name=f"C{number}",
            device_identifier=f"C-{number}",
            qr_info=scanned.qr_info,
        )
        client.register_device(registration)
    listed = {device.device_identifier: device.device_id for device in client.user_devices(user_id)}
    identifiers = [f"C-{number}" for number in range(COUNT)]
    checks.lists("user_devices", [name or "" for name in listed], identifiers)
    known = {device.device_id for device in client.devices()}
    if checks.reads_whole_lists:
        checks.lists("devices", set(listed.values()) & known, listed.values())
        first, *rest = sorted(name or "" for name in listed)
        client.remove_device(listed[first])
        checks.lists("remove_device", [device.device_identifier or "" for device in client.user_devices(user_id)], rest)


def _commands(client: ServiceClient, checks: _Checks, device_id: str) -> None:
    for number in range(COUNT):
        client.send_command(SendCommand(device_id=device_id, command_payload={"command": "ping", "number": number}))
    listed = client.device_commands(device_id)
    checks.equal("device_commands, unreadable", listed.malformed, ())
    checks.lists("device_commands", [one.command_payload.get("number") for one in listed.records], range(COUNT))
    ids = [one.id or "" for one in listed.records]
    checks.equal("device_commands have ids of their own", len({*ids} - {""}), len(ids))


def _readings(client: ServiceClient, account: Account, checks: _Checks, device_id: str) -> None:
    for number in range(COUNT):
        client.post_sensor_data(PostSensorData(device_id=device_id, sensor_data={"number": number}))
    stored = [row.values["number"] for row in account.stored(device_id)]
    checks.equal("post_sensor_data", stored, list(range(COUNT)))
    rows = client.sensor_data(device_id if checks.filters else None)
    checks.lists("sensor_data", [row.sensor_data.get("number") for row in rows], range(COUNT))


def _database(client: ServiceClient, checks: _Checks, product_id: str, device_id: str) -> None:
    schema = client.create_schema(product_id, NewSchema(name="main"))
    checks.lists("schemas", [one.schema_id for one in client.schemas(product_id)], [schema.schema_id])
    column = NewColumn(name="number", type="number")
    client.create_table(NewTable(schema_id=schema.schema_id, table_name="runs", columns=(column,)))
    for number in range(COUNT):
        client.create_runtime_record(
            NewRuntimeRecord(
                product_id=product_id, device_id=device_id, table_name="runs", data_payload={"number": number}
            )
        )
    table_name = "runs" if checks.filters else None
    rows = {row.data_payload.get("number"): row.id for row in client.runtime_data(table_name=table_name)}
    checks.lists("runtime_data", rows, range(COUNT))
    first, *rest = rows
    client.replace_runtime_record(rows[first], {"number": 100})
    if checks.reads_whole_lists:
        client.delete_runtime_record(rows[rest[0]])
        found = [row.data_payload.get("number") for row in client.runtime_data(table_name=table_name)]
        checks.lists("runtime_data, changed", found, [100, *rest[1:]])


def _errors(client: ServiceClient, checks: _Checks) -> None:
    checks.raises("unknown device", (NotFound,), lambda: client.device_commands("nobody"))
    missing = SendCommand(device_id="nobody", command_payload={})
    checks.raises("a command for nobody", (NotFound,), lambda: client.send_command(missing))
    checks.raises("unknown product", (NotFound,), lambda: client.delete_product("nobody"))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
