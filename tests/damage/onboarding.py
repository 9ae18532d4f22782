"""An onboarding of three labels at a small server, whose answers are damaged in one way at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.exit_codes import ExitCode
from simulator.labels.payload import label_text
from tests.damage.run import Kind, called, planted
from tests.onboarding_fakes import Answered, FakeServer, Page, Raw, fake_server

FAILED, UNREACHABLE = ExitCode.CHECK_FAILED, ExitCode.UNREACHABLE
NAMES = ("SN-0", "SN-1", "SN-2")

Change = Callable[["OnboardCase", Any, Answered], Answered]
"""The case, the request's body and the right answer in; what is answered instead out."""


@dataclass(slots=True)
class OnboardCase:
    """Three labels and a server, to be damaged, and how it will be looked at.

    Attributes:
        folder: for labels, keys and what the run leaves, in ``out``.
        command: of ``fleet-simulator onboard``.
        server: once it was asked something that is damaged.
    """

    folder: Path
    command: str = "campaign"
    quirk: Callable[[FakeServer, str, str, Any, Answered], Answered] | None = None
    server: FakeServer | None = None

    @property
    def out(self) -> Path:
        return self.folder / "out"


def onboarded(case: OnboardCase) -> tuple[int, str]:
    """``fleet-simulator onboard`` at the damaged server: its exit code, and all that it says."""

    def quirk(method: str, path: str, body: Any, right: Answered) -> Answered:
        return right if case.quirk is None else case.quirk(server, method, path, body, right)

    (case.folder / "secret").write_text("msk_damage")
    with fake_server(quirk) as server:
        product_id = "p-1"
        server.memory.products.add(product_id)
        labels = [
            {"text": label_text(product_id, name), "product_id": product_id, "identifier": name} for name in NAMES
        ]
        (case.folder / "manifest.json").write_text(json.dumps({"format": "device-agent/labels/1", "labels": labels}))
        way = [
            "--base-url",
            server.base_url,
            "--api-key",
            "mk_damage",
            "--secret-key-file",
            str(case.folder / "secret"),
        ]
        run = [
            "onboard",
            case.command,
            str(case.folder / "manifest.json"),
            *way,
            "--user-id",
            "u",
            "--out",
            str(case.out),
        ]
        more = {"campaign": ["--concurrency", "1", "--attempts", "2"], "labels": ["--manifest", "--remove"]}
        run += more.get(case.command, [])
        return called(run)


# --- answers of the server ------------------------------------------------------------------------------------------


def _scan(change: Change) -> Callable[[OnboardCase], None]:
    return _answers("POST", "/onboarding/scan-qr", change)


def _register(change: Change) -> Callable[[OnboardCase], None]:
    return _answers("POST", "/onboarding/device", change)


def _list(change: Change) -> Callable[[OnboardCase], None]:
    return _answers("GET", "/onboarding/user/", change)


def _remove(change: Change) -> Callable[[OnboardCase], None]:
    return _answers("DELETE", "/onboarding/device/", change)


def _answers(method: str, path: str, change: Change) -> Callable[[OnboardCase], None]:
    """Damage all answers of one operation."""

    def plant(case: OnboardCase) -> None:
        def quirk(server: FakeServer, asked: str, where: str, body: Any, right: Answered) -> Answered:
            if (asked, where.startswith(path)) != (method, True):
                return right
            case.server = server
            return change(case, body, right)

        case.quirk = quirk

    return plant


def _with(**members: Any) -> Change:
    """Other members in an object."""
    return lambda _case, _body, right: (right[0], {**right[1], **members})


def _instead(status: int, value: Any) -> Change:
    return lambda _case, _body, _right: (status, value)


def _rows(change: Callable[[list[dict[str, Any]]], Any]) -> Change:
    """Change a list that has rows."""

    def changed(_case: OnboardCase, _body: Any, right: Answered) -> Answered:
        if right[0] != 200 or not right[1]:
            return right
        found = change(right[1])
        return right[0], right[1] if found is None else found

    return changed


def _row(**members: Any) -> Change:
    """Other members in the first row of a list."""
    return _rows(lambda rows: [{**rows[0], **members}, *rows[1:]])


Rows = Mapping[str, tuple[Change, *tuple[str, ...]]]
"""Damage -> how it is made, and what the campaign says; then, where that is something else, what ``labels`` says."""
PAGE = Page(b"<!doctype html><html><body>Sign in</body></html>")


def _stored(change: Callable[[dict[str, Any]], Any]) -> Change:
    """The answer is right, and the server keeps something else."""

    def changed(case: OnboardCase, _body: Any, right: Answered) -> Answered:
        assert case.server is not None
        change(case.server.memory.devices)
        return right

    return changed


def _forgotten(case: OnboardCase, body: Any, right: Answered) -> Answered:
    """Say nothing, and keep nothing."""
    return _stored(lambda devices: devices.pop(_newest(devices), None))(case, body, right)[0], None


def _more(**members: Any) -> Change:
    return lambda _case, _body, right: (right[0], {"data": right[1], **members})


def _newest(devices: dict[str, Any]) -> str:
    return list(devices)[-1]


def _twice(devices: dict[str, Any]) -> None:
    newest = devices[_newest(devices)]
    devices["d-copy"] = newest.model_copy(update={"device_id": "d-copy"})


def _kept_on_removal(case: OnboardCase) -> None:
    """The server says that it removed a device, and lists it all the same."""
    made: dict[str, Any] = {}

    def quirk(server: FakeServer, method: str, _path: str, _body: Any, right: Answered) -> Answered:
        made.update(server.memory.devices)
        if method == "DELETE":
            server.memory.devices.update(made)
        return right

    case.quirk = quirk


SCANS: Rows = {
    "another product": (_with(product={"product_id": "p-9", "name": "x"}), "product_id: expected 'p-1', found 'p-9'"),
    "another identifier": (_with(device_identifier="SN-9"), "device_identifier: expected 'SN-0', found 'SN-9'"),
    "another product in qr_info": (_with(qr_info={"product_id": "p-9"}), "qr_info.product_id: expected 'p-1'"),
    "another identifier in qr_info": (
        _with(qr_info={"device_identifier": "SN-9"}),
        "qr_info.device_identifier: expected 'SN-0', found 'SN-9'",
    ),
    "404": (_instead(404, {"error": "product_not_found"}), "not found"),
    "400": (_instead(400, {"error": "invalid_qr"}), "refused"),
    "500": (_instead(500, {"error": "internal_error"}), "server error"),
    "an error with status 200": (_instead(200, {"error": "invalid_qr"}), "it shows no product"),
    "an object of something else": (_instead(200, {"fine": True}), "it shows no product"),
    "a list": (_instead(200, []), "that is no ScanAnswer"),
    "a text": (_instead(200, "fine"), "that is no ScanAnswer"),
    "a page of HTML": (_instead(200, PAGE), "JSON"),
    "half of the JSON": (_instead(200, Raw(b'{"product": {"produ')), "truncated or broken JSON"),
    "a redirect": (_instead(302, None), "redirects (302)"),
}
REGISTRATIONS: Rows = {
    "another identifier": (_with(device_identifier="SN-9"), "device_identifier: expected 'SN-0', found 'SN-9'"),
    "another product": (_with(product_id="p-9"), "product_id: expected 'p-1', found 'p-9'"),
    "another user": (_with(user_id="somebody"), "user_id: expected 'u', found 'somebody'"),
    "another name": (_with(device_name="Another"), "found 'Another'"),
    "one id for all": (_with(device_id="d-1"), "expected"),
    "an id that is not listed": (_with(device_id="d-9"), "device_id: expected 'd-9', found 'd-1'"),
    "201, and not stored": (
        _stored(lambda devices: devices.pop(_newest(devices), None)),
        "missing: SN-0",
        "device not listed",
    ),
    "201 without a body, and not stored": (_forgotten, "missing: SN-0", "device not listed"),
    "201, and stored twice": (_stored(_twice), "doubled: SN-2", "listed more than once"),
    "404": (_instead(404, {"error": "product_not_found"}), "not found"),
}
LISTS: Rows = {
    "empty": (_rows(lambda _: []), "missing: SN-0", "device not listed"),
    "a device missing": (_rows(lambda rows: rows[1:]), "missing: SN-0", "device not listed"),
    "a device twice": (_rows(lambda rows: [rows[0], *rows]), "doubled: SN-0", "listed more than once"),
    "a device twice, under another id": (
        _rows(lambda rows: [{**rows[0], "device_id": "d-copy"}, *rows]),
        "doubled: SN-0",
        "listed more than once",
    ),
    "another id": (_row(device_id="d-9"), "device_id: expected 'd-1', found 'd-9'"),
    "another identifier": (_row(device_identifier="SN-9"), "device_identifier: expected 'SN-0', found 'SN-9'"),
    "another product": (_row(product_id="p-9"), "product_id: expected 'p-1', found 'p-9'"),
    "another user": (_row(user_id="somebody"), "user_id: expected 'u', found 'somebody'"),
    "another name": (_row(device_name="Another"), "found 'Another'"),
    "one id for all": (
        _rows(lambda rows: [{**row, "device_id": "d-1"} for row in rows]),
        "missing: SN-1, SN-2; doubled: SN-0",
        "device_id: expected 'd-2', found 'd-1'",
    ),
    "rows are texts": (_rows(lambda rows: [row["device_id"] for row in rows]), "that is no Device"),
    "rows are empty": (_rows(lambda rows: [{} for _ in rows]), "missing: SN-0", "device not listed"),
    "404": (_instead(404, {"error": "user_not_found"}), "missing: SN-0", "answered not found"),
    "500": (_instead(500, {"error": "internal_error"}), "500 internal_error"),
    "a page of HTML": (_instead(200, PAGE), "a web page instead of JSON"),
    "half of the JSON": (_instead(200, Raw(b'[{"device_id": "d-')), "truncated or broken JSON"),
    "a number": (_instead(200, 3), "where a list belongs"),
    "an object without a list": (_instead(200, {"count": 3}), "where one list belongs"),
    "more is said, and not how to get it": (_more(has_more=True), "not how to get it"),
    "it never ends": (_more(next_cursor="again", has_more=True), "repeats the same page"),
}
REMOVALS: Rows = {
    "404": (_instead(404, {"error": "device_not_found"}), "answered not found"),
    "409": (_instead(409, {"error": "conflict"}), "answered conflict"),
    "500": (_instead(500, {"error": "internal_error"}), "answered server error"),
    "another device": (_instead(200, {"device_id": "d-9", "device_identifier": "SN-9"}), "answered a contradiction"),
    "a redirect": (_instead(302, None), "redirects (302)"),
}


def _driven(
    command: str,
    place: str,
    plant: Callable[[Change], Callable[[OnboardCase], None]],
    rows: Rows,
) -> Iterator[Kind]:
    for name, (change, *words) in rows.items():

        def planting(case: OnboardCase, change: Change = change) -> None:
            case.command = command
            plant(change)(case)

        code = UNREACHABLE if name in STOPPED and rows is SCANS else FAILED
        said = words[-1] if command == "labels" else words[0]
        yield planted(f"{place}, by onboard {command}", name, planting, code, said)


STOPPED = {"a list", "a text", "a page of HTML", "half of the JSON", "a redirect"}
"""Of scans: no service is there, so that all others would fare the same."""


def onboardings() -> Iterator[Kind]:
    """Everything that is damaged of an onboarding."""
    for command in ("campaign", "labels"):
        yield from _driven(command, "answers to scans", _scan, SCANS)
        yield from _driven(command, "answers to registrations", _register, REGISTRATIONS)
        yield from _driven(command, "the list of a user", _list, LISTS)
    yield from _driven("labels", "answers to removals", _remove, REMOVALS)

    def kept(case: OnboardCase) -> None:
        case.command = "labels"
        _kept_on_removal(case)

    yield planted(
        "answers to removals, by onboard labels", "204, and still listed", kept, FAILED, "answered device listed"
    )
