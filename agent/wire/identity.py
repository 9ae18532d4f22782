"""Whose web page is it? Some services answer writes and errors with HTML, and so do captive portals.

A page counts as the service's own only where the same kind of request never had anything else, and where the service
has shown right after it that the way to it is open. Pure: the caller makes the request that shows it.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Final

PROOF_PATH: Final = "/devices"
"""What is asked for a proof: any JSON that comes back is the service's. Reading the list of devices changes nothing,
while a list of commands may be handed out once."""
_PROOFS_MAX: Final = 8
_WITHIN_S: Final = 10.0
_AFTER_FAILURE_S: Final = 60.0
_PAGE_KEPT_S: Final = 3_600.0
_KEPT_MAX: Final = 256
_COMPARED_BYTES: Final = 1_000
_WORDS: Final = frozenset(
    {
        *("products", "commands", "dashboard", "devices", "send", "sensor-data", "database", "schemas", "tables"),
        *("runtime-data", "onboarding", "scan-qr", "device", "user", "rules", "analytics", "auth", "signin", "result"),
    }
)


class PageVerdict(StrEnum):
    """What a web page with a 2xx or 4xx status is."""

    MEANT = "meant"
    """The service's own: its status means what it says."""
    FOREIGN = "foreign"
    """A captive portal's, or another server's: nothing is concluded from it."""
    DOUBTFUL = "doubtful"
    """The service's own, if it can be proved now: :meth:`Identity.may_ask` says whether to try."""


def is_page(content_type: str, body: bytes) -> bool:
    """Whether an answer is a web page; frameworks add ``text/html`` also to an empty body, which is none."""
    text = body[:200].lstrip(b"\xef\xbb\xbf \t\r\n")
    return bool(text) and ("html" in content_type.lower() or text.startswith(b"<"))


def is_proof(status: int, content_type: str, body: bytes) -> bool:
    """Whether the answer to ``GET`` :data:`PROOF_PATH` is the service's: JSON, whatever the status.

    Args:
        status: the status code.
        content_type: of the answer.
        body: at least its beginning.
    """
    if 300 <= status < 400 or is_page(content_type, body):
        return False
    return "json" in content_type.lower() or body[:200].lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"[", b"{"))


class Identity:
    """What one origin has answered so far, by kind of request. Not thread-safe by itself, and harmless if raced.

    A kind is the method, the path without ids, and the status (all 2xx are one). For each answer that is no page call
    :meth:`note`; for each page call :meth:`judge`, and on ``DOUBTFUL`` ask for a proof if :meth:`may_ask`, then call
    :meth:`proved` with the outcome.
    """

    def __init__(self) -> None:
        self._without_page: set[tuple[str, str, int]] = set()
        self._own_pages: dict[bytes, float] = {}
        self._next_proof_s = float("-inf")
        self._proofs: tuple[float, ...] = ()

    def note(self, method: str, path: str, status: int) -> None:
        """Note that the answer to this request was no web page."""
        if len(self._without_page) < _KEPT_MAX:
            self._without_page.add(_kind(method, path, status))

    def judge(self, method: str, path: str, status: int, body: bytes, now_s: float) -> PageVerdict:
        """What a web page that answers this request is; only for a 2xx or 4xx.

        Args:
            method: of the request.
            path: of the request, without the query.
            status: the status code.
            body: the page.
            now_s: monotonic seconds.
        """
        is_good = 200 <= status < 300
        if (is_good and method == "GET") or _kind(method, path, status) in self._without_page:
            return PageVerdict.FOREIGN
        proved_s = self._own_pages.get(_digest(method, path, status, body))
        if proved_s is not None and now_s - proved_s < _PAGE_KEPT_S:
            return PageVerdict.MEANT
        return PageVerdict.DOUBTFUL

    def may_ask(self, now_s: float) -> bool:
        """Whether a proof may be asked for now: at most 8 within 10 s, and once a minute after one that failed."""
        return now_s >= self._next_proof_s

    def asked(self, now_s: float, *, good: bool) -> None:
        """Note that a proof was asked for, and whether it came."""
        if not good:
            self._next_proof_s = now_s + _AFTER_FAILURE_S
            return
        self._proofs = (*self._proofs, now_s)[-_PROOFS_MAX:]
        self._next_proof_s = self._proofs[0] + _WITHIN_S if len(self._proofs) == _PROOFS_MAX else now_s

    def proved(self, method: str, path: str, status: int, body: bytes, now_s: float) -> None:
        """The page that was doubtful is the service's own, and so is the same page for the next hour."""
        if len(self._own_pages) >= _KEPT_MAX:
            self._own_pages.clear()
        self._own_pages[_digest(method, path, status, body)] = now_s


def _kind(method: str, path: str, status: int) -> tuple[str, str, int]:
    words = "/".join(part if part in _WORDS else "*" for part in path.split("/"))
    return method, words, 200 if 200 <= status < 300 else status


def _digest(method: str, path: str, status: int, body: bytes) -> bytes:
    """The same for the same page: error pages often name the path, which differs by id."""
    text = body[:_COMPARED_BYTES].replace(path.encode(), b"")
    return hashlib.sha256(f"{method} {status}\n".encode() + text).digest()
