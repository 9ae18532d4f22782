"""Write ``simulator/service/examples.json``, the examples of the OpenAPI document, out of the golden bodies.

Run it after a change in ``tests/contract/golden``: ``python tools/write_examples.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from simulator.service.app import ENDPOINTS
from simulator.service.document import EXAMPLES
from simulator.service.endpoints import Endpoint

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "contract" / "golden"


def make_text(endpoints: Sequence[Endpoint]) -> str:
    """The file's text: operation -> ``request`` and ``responses`` by status -> name -> body."""
    made: dict[str, Any] = {}
    files = sorted(GOLDEN.glob("exchanges*.json"))
    for exchange in (row for file in files for row in json.loads(file.read_text(encoding="utf-8"))):
        for endpoint in _of(exchange, endpoints):
            mine = made.setdefault(endpoint.name, {})
            name = exchange["name"]
            if "request" in exchange:
                mine.setdefault("request", {})[name] = _body(exchange["request"])
            if "response" in exchange:
                answers = mine.setdefault("responses", {}).setdefault(str(exchange["status"]), {})
                answers[name] = _body(exchange["response"])
    return json.dumps(dict(sorted(made.items())), indent=1, ensure_ascii=False) + "\n"


def _of(exchange: dict[str, Any], endpoints: Sequence[Endpoint]) -> Iterator[Endpoint]:
    """The operation of an exchange: one, or none; a path without parameters comes before one with them."""
    fitting = [
        endpoint
        for endpoint in endpoints
        if endpoint.method == exchange["method"]
        and re.fullmatch(re.sub(r"{\w+}", "[^/]+", endpoint.path), exchange["path"])
    ]
    yield from sorted(fitting, key=lambda endpoint: endpoint.path.count("{"))[:1]


def _body(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    EXAMPLES.write_text(make_text(ENDPOINTS), encoding="utf-8")
    print(f"{EXAMPLES} written")
