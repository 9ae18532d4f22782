"""The JSON Schema of a scenario, for editors and for whoever writes scenarios by program."""

from __future__ import annotations

import json
from typing import Any

from simulator.fleet.scenario.model import Scenario


def schema_text() -> str:
    """The schema as a file holds it."""
    return json.dumps(scenario_schema(), indent=2) + "\n"


def scenario_schema() -> dict[str, Any]:
    """JSON Schema 2020-12. It knows every key, unit and bound; what parts need of each other only reading tells."""
    schema = Scenario.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Fleet scenario"}
