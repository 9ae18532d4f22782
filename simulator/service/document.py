"""The OpenAPI document, made of the same declarations that the routes are made of."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent.wire import extensions
from agent.wire.limits import BATCH_MAX, BODY_BYTES, JSON_DEPTH
from simulator.service.endpoints import ERROR, FORM, JSON, Endpoint, Parameter, Reply
from simulator.service.parameters import IDEMPOTENCY_KEY
from simulator.service.records import ErrorRecord
from simulator.service.schemas import Schemas, list_of

Json = dict[str, Any]


_PATH_PARAMETER: Final = re.compile(r"{(\w+)}")
_INVALID: Final = Reply(400, "`validation_error`: `details` name each fault", ERROR)
_ALWAYS: Final = (
    _INVALID,
    Reply(401, "`missing_credentials`, `invalid_credentials` or `invalid_token`", ERROR),
    Reply(404, "`not_found`: the path holds no id", ERROR),
    Reply(429, "`rate_limit_exceeded`: wait `Retry-After` seconds", ERROR),
)
_BROKEN: Final = (
    Reply(500, "`internal_error`", ERROR),
    Reply(503, "`storage_unavailable` or `service_busy`: nothing was stored; try again", ERROR),
)
_WITH_BODY: Final = (
    _INVALID,
    Reply(413, f"`payload_too_large`: at most {BODY_BYTES} bytes", ERROR),
    Reply(415, "`unsupported_media_type`: the body must be `application/json`", ERROR),
)
_WITH_KEY: Final = (
    Reply(409, "`idempotency_key_in_use`", ERROR),
    Reply(422, "`idempotency_key_reused`", ERROR),
)
_WITH_SCOPE: Final = Reply(403, "`insufficient_scope`: a bearer token may not do this", ERROR)
_QUOTA_HEADERS: Final = {
    "RateLimit-Policy": "The quota: `q` requests in `w` seconds",
    "RateLimit": "What is left: `r` requests for the next `t` seconds",
    "X-RateLimit-Limit": "Requests in one calendar minute",
    "X-RateLimit-Remaining": "Requests left in this minute",
    "X-RateLimit-Reset": "When the next minute begins, seconds since the epoch",
}
_TEXT: Final[Mapping[str, Any]] = {"schema": {"type": "string"}}
_DESCRIPTION: Final = f"""\
The Manufacturer API. Send both keys with every request, `x-api-key` **and** `x-secret-key`;
where an operation names a scope, `Authorization: Bearer <ACCESS_TOKEN>` does as well.

* **Extensions**: operations, parameters and bodies marked `x-extension` go beyond the specification;
  `GET /.well-known/device-service` lists those that a service has.
* **Bodies** are JSON in UTF-8: at most {BODY_BYTES:,} bytes and {JSON_DEPTH} levels. Refused everywhere with 400: NaN,
  integers beyond 64 bits, NUL and lone surrogates in text, a name twice in one object, `1.0` where an integer is due,
  and unknown members where none are announced. An unknown query parameter is refused too.
* **Times** are RFC 3339 in UTC with milliseconds; where one is sent, epoch milliseconds do as well.
* **Lists** come in pages: `limit`, `cursor`, `order`; `Link: <...>; rel="next"` leads on.
* **Errors** carry `error`, a stable word, and `message`, a sentence. An unknown path is 404 `not_found`, another method
  405 with `Allow`.
* `X-Request-Id` is echoed when a request has one of up to 128 characters `A-Za-z0-9._:/+=@-`, and made otherwise.
"""


def make_document(endpoints: Sequence[Endpoint], title: str) -> Json:
    """The whole document (OpenAPI 3.1)."""
    schemas = Schemas()
    paths: dict[str, Json] = {}
    for endpoint in endpoints:
        made = _Operation(endpoint, schemas).make()
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = made
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": importlib.metadata.version("device-agent"),
            "description": _DESCRIPTION,
        },
        "servers": [{"url": "/", "description": "This service"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(endpoint.tag for endpoint in endpoints)],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "securitySchemes": _security_schemes(endpoints),
        },
    }


def _security_schemes(endpoints: Sequence[Endpoint]) -> Json:
    schemes: Json = {}
    if any(not endpoint.public for endpoint in endpoints):
        schemes["api_key"] = {
            "type": "apiKey",
            "in": "header",
            "name": "x-api-key",
            "description": "Public key, begins with `mk_`",
        }
        schemes["secret_key"] = {
            "type": "apiKey",
            "in": "header",
            "name": "x-secret-key",
            "description": "Secret key, begins with `msk_`. Keep it on a server that you control, never in an app",
        }
    if any(endpoint.scope for endpoint in endpoints):
        schemes["bearer"] = {"type": "http", "scheme": "bearer", "description": "Access token of a partner application"}
    return schemes


class _Operation:
    """One endpoint on its way into the document."""

    def __init__(self, endpoint: Endpoint, schemas: Schemas) -> None:
        self.endpoint = endpoint
        self.schemas = schemas

    def make(self) -> Json:
        endpoint = self.endpoint
        operation: Json = {
            "operationId": endpoint.name,
            "summary": endpoint.summary.replace("`", ""),
            "tags": [endpoint.tag],
            "parameters": [_path_parameter(name) for name in _PATH_PARAMETER.findall(endpoint.path)]
            + [_parameter(parameter) for parameter in _parameters(endpoint)],
            "responses": self._responses(),
            "security": _security(endpoint),
        }
        if endpoint.extension is not None:
            operation |= {"x-extension": True, "x-extension-name": endpoint.extension}
        if endpoint.body:
            content: Json = {"schema": self._body()}
            operation["requestBody"] = {"required": True, "content": {JSON: content}}
            if endpoint.form:
                operation["requestBody"]["content"][FORM] = {"schema": content["schema"]}
        if endpoint.raw:
            kinds = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in endpoint.raw}
            operation["requestBody"] = {"required": True, "content": kinds}
        return operation

    def _body(self) -> Json:
        kinds = [self.schemas.of(kind, received=True) for kind in self.endpoint.body]
        if len(kinds) == 1:
            return kinds[0]
        # Items are checked one by one and those that are refused are named in the answer: no item fails the array.
        array: Json = {
            "type": "array",
            "items": {"anyOf": [kinds[1]["items"], {"description": "Anything else is refused by itself, in `errors`"}]},
            "minItems": 1,
            "maxItems": BATCH_MAX,
            "x-extension": True,
            "x-extension-name": extensions.BATCH_SENSOR_DATA,
        }
        return {"oneOf": [kinds[0], array]}

    def _responses(self) -> Json:
        replies: dict[int, list[Reply]] = {}
        for reply in (*self.endpoint.replies, *_common(self.endpoint)):
            replies.setdefault(reply.status, []).append(reply)
        return {str(status): self._response(replies[status]) for status in sorted(replies)}

    def _response(self, replies: Sequence[Reply]) -> Json:
        shown = dict.fromkeys(reply.description for reply in replies if reply is not _INVALID or len(replies) == 1)
        response: Json = {"description": "; ".join(shown), "headers": _headers(self.endpoint, replies[0])}
        reply = replies[0]
        if reply.body is None:
            if reply.media_type != JSON:
                response["content"] = {reply.media_type: {"schema": {"type": "string"}}}
            return response
        item = self.schemas.of(ErrorRecord if reply.body is ERROR else reply.body, received=False)
        content: Json = {"schema": list_of(item) if reply.listed else item}
        response["content"] = {reply.media_type: content}
        for other in replies[1:]:
            if other.body is None and other.media_type not in {JSON, reply.media_type}:
                response["content"][other.media_type] = {"schema": {"type": "string", "format": "binary"}}
        return response


def _security(endpoint: Endpoint) -> list[Json]:
    """Both keys are ONE requirement; a bearer token is another that does as well."""
    if endpoint.public:
        return []
    keys: Json = {"api_key": [], "secret_key": []}
    return [keys] if endpoint.scope is None else [keys, {"bearer": [endpoint.scope]}]


def _parameters(endpoint: Endpoint) -> tuple[Parameter, ...]:
    if endpoint.method == "POST" and not endpoint.public and endpoint.replayed:
        return (*endpoint.parameters, IDEMPOTENCY_KEY)
    return endpoint.parameters


def _path_parameter(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _parameter(parameter: Parameter) -> Json:
    shown: Json = {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "schema": parameter.schema,
    }
    if parameter.required:
        shown["required"] = True
    if parameter.extension is not None:
        shown |= {"x-extension": True, "x-extension-name": parameter.extension}
    return shown


def _common(endpoint: Endpoint) -> tuple[Reply, ...]:
    body = _WITH_BODY if endpoint.body else ()
    if endpoint.public:
        return (*body, *_BROKEN)
    always = tuple(r for r in _ALWAYS if r.status != 404 or "{" in endpoint.path)
    key = _WITH_KEY if endpoint.method == "POST" and endpoint.replayed else ()
    return (*always, *body, *key, _WITH_SCOPE, *_BROKEN)


def _headers(endpoint: Endpoint, reply: Reply) -> Json:
    headers: Json = {"X-Request-Id": {**_TEXT, "description": "Name it when you ask about this request"}}
    if not endpoint.public and reply.status != 401:
        headers |= {
            name: {**_TEXT, "description": f"{about}; absent when no quota is set"}
            for name, about in _QUOTA_HEADERS.items()
        }
    if reply.located:
        headers["Location"] = {"schema": {"type": "string", "minLength": 1}, "description": "Where it is"}
    if reply.listed:
        headers["Link"] = {**_TEXT, "description": '`<...>; rel="next"`, when more follows'}
    if any(parameter.name == "If-None-Match" for parameter in endpoint.parameters) and reply.status in {200, 304}:
        headers["ETag"] = {**_TEXT, "description": "This version of the list"}
    if reply.status in {429, 503}:
        headers["Retry-After"] = {**_TEXT, "description": "Seconds to wait"}
    if reply.status in {401, 403}:
        headers["WWW-Authenticate"] = {**_TEXT, "description": 'Such as `ApiKey realm="..."`'}
    return headers
