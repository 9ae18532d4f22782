"""The OpenAPI document, made of the same declarations that the routes are made of."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import TypeAdapter

from agent.wire import extensions
from agent.wire.limits import BODY_BYTES
from simulator.service.endpoints import ERROR, Endpoint, Parameter, Reply
from simulator.service.records import ErrorRecord
from simulator.service.routes.parameters import IDEMPOTENCY_KEY

Json = dict[str, Any]

_REF: Final = "#/components/schemas/{model}"
_PATH_PARAMETER: Final = re.compile(r"{(\w+)}")
_ALWAYS: Final = (
    Reply(401, "`missing_credentials` or `invalid_credentials`", ERROR),
    Reply(404, "`not_found`: the path holds no id", ERROR),
    Reply(429, "`rate_limit_exceeded`: wait `Retry-After` seconds", ERROR),
    Reply(500, "`internal_error`", ERROR),
    Reply(503, "`storage_unavailable` or `service_busy`: nothing was stored", ERROR),
)
_WITH_BODY: Final = (
    Reply(413, f"`payload_too_large`: at most {BODY_BYTES} bytes", ERROR),
    Reply(415, "`unsupported_media_type`: the body must be `application/json`", ERROR),
)
_WITH_KEY: Final = (
    Reply(409, "`idempotency_key_in_use`", ERROR),
    Reply(422, "`idempotency_key_reused`", ERROR),
)
_QUOTA_HEADERS: Final = (
    "RateLimit-Policy",
    "RateLimit",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
)


class _Schemas:
    """Collects the schemas of all types under ``components``."""

    def __init__(self) -> None:
        self.components: Json = {}

    def of(self, kind: Any, *, received: bool) -> Json:
        """The schema of a type, by reference where it has a name."""
        schema = TypeAdapter(kind).json_schema(mode="validation" if received else "serialization", ref_template=_REF)
        self.components.update(schema.pop("$defs", {}))
        if "title" in schema and "properties" in schema:
            self.components[schema["title"]] = schema
            return {"$ref": _REF.format(model=schema["title"])}
        return schema


def make_document(endpoints: Sequence[Endpoint], title: str) -> Json:
    """The whole document (OpenAPI 3.1)."""
    schemas = _Schemas()
    paths: dict[str, Json] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": importlib.metadata.version("device-agent"),
            "description": "Operations and parameters marked `x-extension` go beyond the specification; "
            "`GET /.well-known/device-service` lists the extensions that a service has.",
        },
        "tags": [{"name": tag} for tag in dict.fromkeys(endpoint.tag for endpoint in endpoints)],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "securitySchemes": {
                "api_key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                "secret_key": {"type": "apiKey", "in": "header", "name": "x-secret-key"},
            },
        },
    }


def _operation(endpoint: Endpoint, schemas: _Schemas) -> Json:
    operation: Json = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "parameters": [_path_parameter(name) for name in _PATH_PARAMETER.findall(endpoint.path)]
        + [_parameter(parameter) for parameter in _parameters(endpoint)],
        "responses": _responses(endpoint, schemas),
        "security": [] if endpoint.public else [{"api_key": [], "secret_key": []}],
    }
    if endpoint.extension is not None:
        operation |= {"x-extension": True, "x-extension-name": endpoint.extension}
    if endpoint.body:
        operation["requestBody"] = {"required": True, "content": _content(_body(endpoint, schemas))}
    return operation


def _parameters(endpoint: Endpoint) -> tuple[Parameter, ...]:
    if endpoint.method == "POST" and not endpoint.public:
        return (*endpoint.parameters, IDEMPOTENCY_KEY)
    return endpoint.parameters


def _body(endpoint: Endpoint, schemas: _Schemas) -> Json:
    kinds = [schemas.of(kind, received=True) for kind in endpoint.body]
    if len(kinds) == 1:
        return kinds[0]
    array: Json = {**kinds[1], "x-extension": True, "x-extension-name": extensions.BATCH_SENSOR_DATA}
    return {"oneOf": [kinds[0], array]}


def _path_parameter(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _parameter(parameter: Parameter) -> Json:
    shown: Json = {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "schema": parameter.schema,
    }
    if parameter.extension is not None:
        shown |= {"x-extension": True, "x-extension-name": parameter.extension}
    return shown


def _responses(endpoint: Endpoint, schemas: _Schemas) -> Json:
    replies: dict[int, list[Reply]] = {}
    for reply in (*endpoint.replies, *_common(endpoint)):
        replies.setdefault(reply.status, []).append(reply)
    return {str(status): _response(endpoint, replies[status], schemas) for status in sorted(replies)}


def _common(endpoint: Endpoint) -> tuple[Reply, ...]:
    if endpoint.public:
        return tuple(reply for reply in _ALWAYS if reply.status >= 500)  # noqa: PLR2004 - server errors
    always = tuple(r for r in _ALWAYS if r.status != 404 or "{" in endpoint.path)  # noqa: PLR2004 - not found
    body = _WITH_BODY if endpoint.body else ()
    key = _WITH_KEY if endpoint.method == "POST" else ()
    invalid = () if any(r.status == 400 for r in endpoint.replies) else _INVALID  # noqa: PLR2004 - bad request
    return (*always, *body, *key, *(invalid if endpoint.method == "POST" else ()))


_INVALID: Final = (Reply(400, "`validation_error`", ERROR),)


def _response(endpoint: Endpoint, replies: Sequence[Reply], schemas: _Schemas) -> Json:
    response: Json = {"description": "; ".join(reply.description for reply in replies)}
    first = replies[0]
    if first.body is not None:
        schema = (
            schemas.of(ErrorRecord, received=False) if first.body is ERROR else schemas.of(first.body, received=False)
        )
        response["content"] = _content(_list_of(schema) if first.listed else schema)
    response["headers"] = _headers(endpoint, first)
    return response


def _headers(endpoint: Endpoint, reply: Reply) -> Json:
    text: Mapping[str, Any] = {"schema": {"type": "string"}}
    headers: Json = {"X-Request-Id": text}
    if not endpoint.public and reply.status != 401:  # noqa: PLR2004 - nothing is counted for nobody
        headers |= {name: {**text, "description": "absent when no quota is set"} for name in _QUOTA_HEADERS}
    if reply.located:
        headers["Location"] = text
    if reply.listed:
        headers["Link"] = {**text, "description": '`rel="next"`, when more follows'}
    if any(parameter.name == "If-None-Match" for parameter in endpoint.parameters) and reply.status in {200, 304}:
        headers["ETag"] = text
    if reply.status in {429, 503}:
        headers["Retry-After"] = text
    if reply.status == 401:  # noqa: PLR2004 - unauthorized
        headers["WWW-Authenticate"] = text
    return headers


def _list_of(item: Json) -> Json:
    return {
        "type": "object",
        "required": ["data", "next_cursor", "has_more"],
        "properties": {
            "data": {"type": "array", "items": item},
            "next_cursor": {"type": ["string", "null"]},
            "has_more": {"type": "boolean"},
        },
    }


def _content(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}
