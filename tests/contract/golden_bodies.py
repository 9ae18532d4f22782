"""Bodies of the golden exchanges, by the operation of the document that they are of."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"
EXCHANGES = [row for file in sorted(GOLDEN.glob("exchanges*.json")) for row in json.loads(file.read_text("utf-8"))]


def bodies_of(verb: str, path: str, paths: Collection[str]) -> list[Any]:
    """What requests of this operation have as their body.

    Args:
        verb: in lower case.
        path: as the document has it.
        paths: all paths of the document: of several that fit an address the one with the fewest parameters is meant.
    """
    found = []
    for exchange in EXCHANGES:
        fitting = [one for one in paths if re.fullmatch(re.sub(r"{\w+}", "[^/]+", one), exchange["path"])]
        told = min(fitting, key=lambda one: one.count("{"), default="")
        if (exchange["method"].lower(), told) == (verb, path) and "request" in exchange:
            found.append(json.loads((GOLDEN / f"{exchange['request']}.json").read_text("utf-8")))
    return found
