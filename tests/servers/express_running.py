"""The server in Express as a real process, and its one account as the contract suite has it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from simulator.children import ChildProcess, Children
from tests.node_packages import node_with
from tests.servers.accounts import Stored
from tests.servers.fronts import Front, Fronts

EXPRESS = Path(__file__).with_name("express")
API_KEY = "mk_express"
# Nothing that the run watches for: this server takes its keys from the environment.
SECRET_KEY = "msk_express_0123456789"
_START_S = 60.0


@dataclass
class ExpressAccount:
    """The account of the server's one key pair."""

    front: Front
    product_id: str
    api_key: str
    secret_key: str = field(repr=False)
    http: httpx.Client = field(repr=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)

    def device(self) -> str:
        identifier = f"FAN-{next(self._numbers):04d}"
        body = {
            "user_id": "user-1",
            "product_id": self.product_id,
            "device_name": identifier,
            "device_identifier": identifier,
            "qr_info": {},
        }
        return str(_sent(self.http.post("/onboarding/device", json=body)).json()["device"]["device_id"])

    def send(self, device_id: str, payload: Mapping[str, Any]) -> None:
        _sent(self.http.post("/commands/send", json={"device_id": device_id, "command_payload": payload}))

    def stored(self, device_id: str) -> Sequence[Stored]:
        rows = _sent(self.http.get("/sensor-data", params={"device_id": device_id})).json()
        return [Stored(row["sensor_data"]) for row in rows]


@contextlib.contextmanager
def express(folder: Path, fronts: Fronts) -> Iterator[ExpressAccount]:
    """The server for the length of the block; it keeps its data in ``folder``."""
    node = node_with(EXPRESS)
    log, output = folder / "express.log", folder / "express.out"
    with Children() as children:
        process = children.add(ChildProcess("express", log, output))
        process.start(
            [node, str(EXPRESS / "server.js")],
            {
                "API_KEY": API_KEY,
                "SECRET_KEY": SECRET_KEY,
                "RATE_LIMIT": "100000",
                "DATA": str(folder / "express.jsonl"),
                "NODE_OPTIONS": "",
            },
        )
        process.wait_until(lambda: output.read_text().endswith("\n"), "it printed its address", _START_S)
        url = output.read_text().rpartition(" ")[2].strip()
        headers = {"x-api-key": API_KEY, "x-secret-key": SECRET_KEY}
        with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=120) as http:
            product = _sent(http.post("/products", json={"name": "Fan"})).json()["data"]["productId"]
            yield ExpressAccount(fronts.before(url), product, API_KEY, SECRET_KEY, http)


def _sent(answer: httpx.Response) -> httpx.Response:
    assert answer.is_success, answer.text
    return answer
