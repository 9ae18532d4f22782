"""Shape and pages of lists. Axes: ``list_shape``, ``paging``, ``page_size``."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlencode

from simulator.service.profile_layer.exchange import LIST_BYTES, Answered, Exchange, refusal
from simulator.service.profile_layer.extensions import PAGE_PARAMETER
from simulator.service.profiles.model import PAGE_SIZE_MAX
from simulator.wire.base64url import from_base64url, to_base64url

_IN_LINK: Final = re.compile(rb"(?<=[?&])(\w+)=[^&>]*(&|(?=>))")
_PAGE_NUMBER_MAX: Final = 10**9
_TOO_LONG: Final = (
    f"The list has more than {LIST_BYTES // 1024**2} MiB, which this profile would read whole for each page of it: "
    "set paging: complete, or ask for less."
)


async def ask(exchange: Exchange) -> None:
    """Before: the page that is asked for; the complete service is asked for all, unless its own pages do."""
    endpoint = exchange.endpoint
    if endpoint is None or not any(reply.listed for reply in endpoint.replies):
        return
    takes_limit = any(one.name == "limit" for one in endpoint.parameters)
    if exchange.profile.paging == "complete":
        if takes_limit and exchange.parameter("limit") is None and exchange.profile.page_size != 100:
            exchange.query.append(("limit", str(exchange.profile.page_size)))
        return
    for name in (PAGE_PARAMETER.get(exchange.profile.paging), "limit"):
        value = None if name is None else exchange.parameter(name)
        if name is not None and value is not None:
            exchange.asked[name] = value
    exchange.query = [one for one in exchange.query if one[0] not in exchange.asked]
    exchange.asked["from"] = str(_first(exchange))
    if exchange.asked["from"] != "0":
        exchange.headers = [one for one in exchange.headers if one[0] != b"if-none-match"]
    if takes_limit:
        exchange.query.append(("limit", str(PAGE_SIZE_MAX)))


async def gather(exchange: Exchange) -> None:
    """After: the rest of the list, then the page of it that was asked for."""
    reply = exchange.reply
    if not is_list(exchange):
        return
    if exchange.profile.paging == "complete":
        _unwrap_links(exchange)
        return
    items = list(reply.value["data"])
    size_bytes = reply.size_bytes
    cursor = reply.value["next_cursor"]
    asked = [one for one in exchange.query if one[0] != "wait"]
    while cursor is not None:
        more = await exchange.again([*asked, ("cursor", cursor)])
        if more.status != 200:
            exchange.reply = more
            return
        items.extend(more.value["data"])
        size_bytes += more.size_bytes
        if size_bytes > LIST_BYTES:
            exchange.reply = refusal(500, "list_too_long", _TOO_LONG)
            return
        cursor = more.value["next_cursor"]
    reply.drop(b"link")
    first, size = int(exchange.asked["from"]), _size(exchange)
    if exchange.profile.paging == "none":
        first, size = 0, _limit(exchange) or len(items)
    if first:
        reply.drop(b"etag")
    if "once" in exchange.asked:
        items = [None] * first + items  # what the pages before held is listed no more
    reply.value = {"data": items[first : first + size]}
    reply.size_bytes = size_bytes
    if exchange.profile.paging != "none":
        _add_paging(exchange, first, size, len(items))


def _unwrap_links(exchange: Exchange) -> None:
    """Take out of ``Link`` what the profile itself has added to the query: the server may refuse it from others."""
    asked = {b"cursor", *(name.encode() for name, _ in exchange.given_query)}

    def kept(found: re.Match[bytes]) -> bytes:
        return found[0] if found[1] in asked else b""

    headers = exchange.reply.headers
    exchange.reply.headers = [(n, _IN_LINK.sub(kept, v) if n == b"link" else v) for n, v in headers]


def shape(exchange: Exchange) -> None:
    """After: the envelope around the items."""
    reply = exchange.reply
    profile = exchange.profile
    if not is_list(exchange) or profile.list_shape == "data":
        return
    rest = dict(reply.value)
    items = rest.pop("data")
    if profile.list_shape == "bare":
        reply.value = items
        return
    named = resource(exchange)
    if profile.list_shape == "hal" and "links" in rest:
        following = rest.pop("links")["next"]
        rest["_links"] = {} if following is None else {"next": {"href": following}}
    around: dict[str, dict[str, Any]] = {
        "items": {"items": items},
        "results": {"results": items},
        "named": {named: items},
        "success_data": {"success": True, "data": items},
        "data_items": {"data": {"items": items}},
        "hal": {"_embedded": {named: items}},
    }
    reply.value = around[profile.list_shape] | rest


def is_list(exchange: Exchange) -> bool:
    """Whether the reply is a list in the complete service's envelope."""
    reply = exchange.reply
    is_envelope = reply.is_json and isinstance(reply.value, dict) and isinstance(reply.value.get("data"), list)
    listed = exchange.endpoint is not None and any(one.listed for one in exchange.endpoint.replies)
    return listed and is_envelope and reply.status == 200


def resource(exchange: Exchange) -> str:
    """What a list holds, by its path: ``commands``, ``sensor_data``."""
    return exchange.path.rsplit("/", 1)[-1].replace("-", "_")


def _add_paging(exchange: Exchange, first: int, size: int, total: int) -> None:
    reply, paging = exchange.reply, exchange.profile.paging
    more = first + size < total
    number = first // size + 1
    pages = max(1, -(-total // size))
    parameter = PAGE_PARAMETER[paging]
    place = {"cursor": _write_cursor(first + size), "offset": str(first + size), "page": str(number + 1)}[parameter]
    following = _url(exchange, **{parameter: place}) if more else None
    if paging == "cursor":
        reply.value["next_cursor"] = place if more else None
    elif paging == "next_url":
        reply.value["next"] = following
    elif paging == "links_next":
        reply.value["links"] = {"next": following}
    elif paging == "page_number":
        reply.value |= {"page": number, "per_page": size, "total": total, "total_pages": pages}
    elif paging == "page_header":
        reply.headers += [(b"x-page", b"%d" % number), (b"x-total-pages", b"%d" % pages)]
    elif paging == "offset":
        reply.value |= {"offset": first, "limit": size, "total": total}
    is_bare = exchange.profile.list_shape == "bare" and paging != "page_header"
    if following is not None and (paging == "link_header" or is_bare):
        reply.headers.append((b"link", f'<{following}>; rel="next"'.encode()))


def _url(exchange: Exchange, **parameters: str) -> str:
    """The list's own address with other parameters, whole where the request says which host it was sent to."""
    kept = [one for one in exchange.given_query if one[0] not in {"cursor", "page", "offset", "wait"}]
    if not exchange.profile.has("list-parameters"):
        kept = [one for one in kept if one[0] != "limit"]
    host = next((value for name, value in exchange.headers if name == b"host"), None)
    origin = "" if host is None else f"{exchange.scope['scheme']}://{host.decode('latin-1')}"
    return f"{origin}{exchange.scope['raw_path'].decode('latin-1')}?{urlencode([*kept, *parameters.items()])}"


def _first(exchange: Exchange) -> int:
    asked = exchange.asked
    if "cursor" in asked:
        return _read_cursor(asked["cursor"])
    if "offset" in asked:
        return _whole(asked["offset"], "offset", 0)
    return (_whole(asked.get("page", "1"), "page", 1) - 1) * _size(exchange)


def _size(exchange: Exchange) -> int:
    return _limit(exchange) or exchange.profile.page_size


def _limit(exchange: Exchange) -> int | None:
    text = exchange.asked.get("limit")
    return None if text is None else min(_whole(text, "limit", 1), PAGE_SIZE_MAX)


def _whole(text: str, name: str, low: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= _PAGE_NUMBER_MAX):
        raise Answered(refusal(400, "validation_error", f"{name}: must be a whole number from {low} on"))
    return int(text)


def _write_cursor(first: int) -> str:
    return to_base64url(b"from:%d" % first)


def _read_cursor(text: str) -> int:
    try:
        word, _, first = (from_base64url(text.rstrip("=")) or b"").partition(b":")
        if word == b"from":
            return _whole(first.decode(), "cursor", 0)
    except ValueError:
        pass
    raise Answered(refusal(400, "validation_error", "cursor: is not a cursor of this server"))
