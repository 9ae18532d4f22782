"""What the logs say of a path, found out once for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agent.wire import paths
from simulator.service.addresses import CONTROL_PREFIX, PAGES
from simulator.service.matching import FoundPath
from simulator.service.request_log.masking import mask_path

PARTNER_ACCESS: Final = frozenset({paths.OAUTH_TOKEN, paths.OAUTH_REVOKE, *PAGES})
_KNOWN_MAX: Final = 4_096
_KNOWN_LENGTH: Final = 200
_LENGTH_MAX: Final = 4_096
"""Of a longer path the beginning is kept."""


@dataclass(frozen=True, slots=True)
class LoggedPath:
    """A path in the logs.

    Attributes:
        raw: as it was sent, percent-encoded; without what looks like a key, and cut.
        has_secrets: whether something was taken out.
        found: its template and what stands for the parameters; None where no endpoint has it.
        template: for the access log, where nothing stands that a caller has chosen.
        is_partner_access: whether a member ``code`` is a secret there.
    """

    raw: bytes
    has_secrets: bool
    found: FoundPath | None
    template: str | None
    is_partner_access: bool


class LoggedPaths:
    """The paths that came of late. One with a secret is not remembered.

    Args:
        find: path -> its template; None when the service has no such path.
    """

    def __init__(self, find: Callable[[str], FoundPath | None]) -> None:
        self._find = find
        self._known: dict[bytes, LoggedPath] = {}

    def look_up(self, raw: bytes) -> LoggedPath:
        """What the logs say of a path, which is as it was sent."""
        known = self._known.get(raw)
        if known is None:
            known = self._make(raw)
            if not known.has_secrets and len(raw) <= _KNOWN_LENGTH:
                if len(self._known) >= _KNOWN_MAX:
                    del self._known[next(iter(self._known))]
                self._known[raw] = known
        return known

    def _make(self, raw: bytes) -> LoggedPath:
        kept = mask_path(raw)
        path = kept.decode("latin-1")
        found = self._find(path)
        template = None if found is None else found.template
        if path.startswith(CONTROL_PREFIX):
            template = CONTROL_PREFIX + path[len(CONTROL_PREFIX) :].partition("/")[0]
        return LoggedPath(kept[:_LENGTH_MAX], kept != raw, found, template, path in PARTNER_ACCESS)
