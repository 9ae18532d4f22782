"""OpenAPI links: where the answer of an operation leads. They are found, not written down.

An answer that holds ``product_id`` leads to every operation that takes a ``product_id`` in its path or query; an
``id`` is the parameter that follows the collection's path (``POST /rules`` -> ``/rules/{rule_id}``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from simulator.service.endpoints import Endpoint

Json = dict[str, Any]

_PARAMETER: Final = re.compile(r"{(\w+)}")
_MAKING: Final = frozenset({"POST", "PUT"})
_ID_OF: Final[Mapping[str, str]] = {"send_command": "command_id", "report_command_result": "command_id"}
"""What ``id`` is called in paths, where the paths do not say."""


def links_of(endpoint: Endpoint, record: Json, endpoints: Sequence[Endpoint]) -> Json:
    """The links of an answer.

    Args:
        endpoint: what answers.
        record: the schema of the answer's body.
        endpoints: what it may lead to.
    """
    if endpoint.method not in _MAKING:
        return {}
    found: Json = {}
    for target in endpoints:
        known = _known(endpoint, target, record)
        wanted = _PARAMETER.findall(target.path)
        if target is endpoint or not wanted or not all(name in known for name in wanted):
            continue
        if target.method == "DELETE" and (endpoint.method != "POST" or target.tag != endpoint.tag):
            continue  # what was only mentioned is not this answer's to delete
        found[target.name] = {
            "operationId": target.name,
            "parameters": {name: known[name] for name in wanted},
            "description": target.summary,
        }
    for target in endpoints:
        queried = {parameter.name for parameter in target.parameters if parameter.place == "query"}
        if target.method == "GET" and "{" not in target.path and "device_id" in queried & record["properties"].keys():
            found[target.name] = {
                "operationId": target.name,
                "parameters": {"device_id": "$response.body#/device_id"},
                "description": target.summary,
            }
    return found


def _known(endpoint: Endpoint, target: Endpoint, record: Json) -> dict[str, str]:
    members = record["properties"]
    known = {name: f"$response.body#/{name}" for name in members if name.endswith("_id")}
    if "id" in members:
        name = _ID_OF.get(endpoint.name)
        if name is None and target.path.startswith(f"{endpoint.path}/{{"):
            name = _PARAMETER.findall(target.path[len(endpoint.path) :])[0]
        if name is not None:
            known[name] = "$response.body#/id"
    if endpoint.method == "PUT":
        known |= {name: f"$request.path.{name}" for name in _PARAMETER.findall(endpoint.path)}
    return known
