"""Lists of devices, products and readings: their shape, their pages, their times."""

from __future__ import annotations

from typing import Any, Final

from agent.errors import ServiceError
from agent.wire import paths
from agent.wire.lists import PageWalk
from agent.wire.pages import Page, read_page
from agent.wire.probe.line import NOT_JSON, Seen
from agent.wire.probe.notes import Notes, is_json
from agent.wire.probe.shapes import TIME_WORDS, list_shape, members_beside, paging_marks, times_in

UNDECIDED: Final = frozenset({0, 401, 403, 408, 425, 429})
"""Statuses that say nothing about a path: no answer, no rights, no quota."""
_ID_NAMES: Final = ("device_id", "deviceId", "id", "_id")
_PRODUCT_NAMES: Final = ("product_id", "productId", "id", "_id")
_LISTED: Final = (
    ("devices", paths.DEVICES, "List of devices."),
    ("products", paths.PRODUCTS, "Products owned by the caller's manufacturer account."),
    ("sensor_data", paths.SENSOR_DATA, "Stored readings."),
)


def probe_lists(notes: Notes, devices: Seen, device_id: str) -> None:
    """Look at devices, products and readings.

    Args:
        notes: take what is found.
        devices: the answer to ``GET /devices``.
        device_id: the device that should be listed.
    """
    good: list[tuple[Seen, bool]] = []
    for word, path, rule in _LISTED:
        seen = devices if path == paths.DEVICES else notes.line.get(path)
        page = _page_of(seen, path)
        needs_filter = word == "sensor_data" and not seen.is_good and seen.status not in UNDECIDED
        if needs_filter:
            _look_for_filter(notes, seen, device_id)
            continue
        if seen.is_good:
            good.append((seen, is_json(seen)))
        verdict = (seen if seen.status not in UNDECIDED else Seen(seen.what, fault=seen.brief()), page is not None)
        notes.judge(f"lists_{word}", f"GET {path}: {rule}", verdict)
        if page is not None:
            _take_list(notes, word, path, seen, page)
    notes.judge("bodies_are_json", "Bodies are JSON.", *good)
    _find_device(notes, devices, device_id)
    for name in ("list_shape", "paging", "time_format"):
        notes.unseen("lists" if name != "time_format" else "times", name, "no list could be read, or all are empty")


def _look_for_filter(notes: Notes, refused: Seen, device_id: str) -> None:
    """Readings that are listed for one device only."""
    if not device_id:
        notes.unseen("readings", "reading_filter", f"{refused.brief()}; with a device's id more could be observed")
        return
    seen = notes.line.get(paths.SENSOR_DATA, {"device_id": device_id})
    page = _page_of(seen, paths.SENSOR_DATA)
    rule = f"GET {paths.SENSOR_DATA}: Stored readings."
    notes.judge("lists_sensor_data", rule, (seen, page is not None))
    notes.note("readings", "reading_filter", "required", f"{refused.brief()}; with device_id {seen.status}")
    if page is not None:
        _take_list(notes, "sensor_data", paths.SENSOR_DATA, seen, page)


def _page_of(seen: Seen, path: str) -> Page | None:
    value = seen.json()
    if not seen.is_good or value is NOT_JSON:
        return None
    try:
        return read_page(value, seen.what, path.rpartition("/")[2])
    except ServiceError:
        return None


def _take_list(notes: Notes, word: str, path: str, seen: Seen, page: Page) -> None:
    """Shape, paging and times of one list that was read; the first list that shows something counts."""
    value = seen.json()
    if word == "products":
        notes.products = [text for item in page.items if (text := id_of(item, _PRODUCT_NAMES))]
    if notes.value("list_shape") is None:
        shape = list_shape(value, page.items, path.rpartition("/")[2])
        notes.note("lists", "list_shape", shape, f"{shape} ({path}, {len(page.items)} items)")
    if notes.value("paging") in {None, "none"}:
        _note_paging(notes, path, seen, page)
    _note_times(notes, word, page.items)


def _note_paging(notes: Notes, path: str, seen: Seen, page: Page) -> None:
    marks = paging_marks(seen, page)
    beside = members_beside(seen.json())
    if not marks:
        hint = f"; beside the items: {', '.join(beside)}" if beside else ""
        missing = page.total is not None and page.total > len(page.items)
        loss = f"of {page.total} items of {path} only {len(page.items)} can be read" if missing else ""
        words = f"{len(page.items)} items of {path} on one page, and no sign of more{hint}"
        if len(page.items):
            notes.note("lists", "paging", "none", words, loss)
        return
    walk = PageWalk(path, {}, notes.line.url(path))
    words = "+".join(marks)
    try:
        walk.proceed(seen.answer(), walk.take(seen.answer()))
        if walk.done:
            by_headers = "page_header" if marks == ["page_header"] else ""
            loss = "further pages are not read: the headers that name them are not known" if by_headers else ""
            notes.note("lists", "paging", words, f"{words} ({path}); this page was the last", loss)
            return
        following = notes.line.get(walk.target, walk.params)
        items = walk.take(following.answer()).items if following.is_good else None
        is_new = items is not None and items != page.items
        loss = "" if is_new else f"further pages of lists are not read ({following.brief()})"
        outcome = "was read" if is_new else "fails"
        notes.note("lists", "paging", words, f"{words} ({path}); the next page {outcome}", loss)
    except ServiceError as error:
        notes.note("lists", "paging", words, f"{words} ({path})", f"further pages of lists are not read: {error}")


def _note_times(notes: Notes, word: str, items: list[Any]) -> None:
    found = list(times_in(items))
    if not found:
        return
    forms = sorted({time.form for time in found})
    if notes.value("time_format") is not None and "unreadable" not in forms:
        return
    example = next((time for time in found if time.form == "unreadable"), found[0])
    loss = ""
    if example.form == "unreadable":
        loss = "whether a command has expired or is too old stays unknown where its times cannot be read"
        notes.found(unread_time=example.name)
    seen = f"{TIME_WORDS[example.form]} ({example.name} of {word}: {str(example.value)[:40]})"
    if example.form == "naive":
        seen += "; UTC is taken unless service.dialect.time_zone says otherwise"
    notes.note("times", "time_format", example.form if len(forms) == 1 else "+".join(forms), seen, loss)


def _find_device(notes: Notes, devices: Seen, device_id: str) -> None:
    page = _page_of(devices, paths.DEVICES)
    if page is None:
        notes.unseen("devices", "device_listed", f"no list of devices ({devices.brief()})")
        return
    records = {text: item for item in page.items if (text := id_of(item, _ID_NAMES))}
    if not device_id:
        notes.unseen("devices", "device_listed", "no device was named")
    elif device_id in records:
        notes.device = records[device_id]
        notes.note("devices", "device_listed", "yes", f"device {device_id} is listed")
    else:
        more = " on the first page" if notes.value("paging") not in {None, "none"} else ""
        notes.note("devices", "device_listed", "no", f"device {device_id} is not among {len(page.items)} devices{more}")


def id_of(item: object, names: tuple[str, ...]) -> str:
    """The id of a record, as text; empty when it has none of these members."""
    if not isinstance(item, dict):
        return ""
    found = next((item[name] for name in names if isinstance(item.get(name), (str, int))), "")
    return str(found)
