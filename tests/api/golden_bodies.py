"""The golden bodies and exchanges, and those of them that are of one operation of the document."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"
P = "019b76da-a800-7000-8000-000000000001"
D = "019b76da-a800-7000-8000-000000000002"
C = "019b76da-a800-7000-8000-000000000003"
SCHEMA = "019b76da-a800-7000-8000-000000000004"
TABLE = "019b76da-a800-7000-8000-000000000005"
READING = "019b76da-a800-7000-8000-000000000006"
RECORD = "019b76da-a800-7000-8000-000000000007"
RULE = "019b76da-a800-7000-8000-000000000008"


def golden(name: str) -> Any:
    """The body with this name."""
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


EXCHANGES: dict[str, dict[str, Any]] = {row["name"]: row for row in golden("exchanges")}
ROWS = [*EXCHANGES.values(), *golden("exchanges_records")]


def bodies_of(verb: str, path: str, paths: Collection[str]) -> list[Any]:
    """What requests of this operation have as their body.

    Args:
        verb: in lower case.
        path: as the document has it.
        paths: all paths of the document: of several that fit an address the one with the fewest parameters is meant.
    """
    found = []
    for exchange in ROWS:
        fitting = [one for one in paths if re.fullmatch(re.sub(r"{\w+}", "[^/]+", one), exchange["path"])]
        told = min(fitting, key=lambda one: one.count("{"), default="")
        if (exchange["method"].lower(), told) == (verb, path) and "request" in exchange:
            found.append(golden(exchange["request"]))
    return found
