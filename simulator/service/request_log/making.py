"""What is kept of a request: cut, and without its secrets."""

from __future__ import annotations

from typing import Final

from agent.wire import paths
from simulator.service.addresses import PAGES
from simulator.service.matching import FoundPath
from simulator.service.request_log.entry import BODY_BYTES, ENTRY_BYTES, Entry
from simulator.service.request_log.masking import mask_body, mask_headers, mask_path, mask_query
from simulator.service.request_log.recording import Recording

_TARGET_MAX: Final = 4_096
"""Of a longer path or query the beginning is kept."""
_VALUE_MAX: Final = 4_096
"""Of a longer header the beginning is kept."""
PARTNER_ACCESS: Final = frozenset({paths.OAUTH_TOKEN, paths.OAUTH_REVOKE, paths.OAUTH_INTROSPECT, *PAGES})


def make_entry(recording: Recording, found: FoundPath | None) -> Entry:
    """What is kept of a request, as far as it has come.

    Args:
        recording: the request.
        found: its path's template.
    """
    path, query = recording.raw_path, recording.query
    is_partner_access = recording.path in PARTNER_ACCESS
    kept_path, kept_query = mask_path(path)[:_TARGET_MAX], mask_query(query)[:_TARGET_MAX]
    body = mask_body(recording.body, is_partner_access=is_partner_access)
    body_bytes = max(recording.body_bytes, _announced(recording))
    answer = b"" if recording.method == "HEAD" else recording.answer
    answer = mask_body(answer, is_partner_access=is_partner_access)
    headers, answer_headers = (
        tuple([(name, value[:_VALUE_MAX]) for name, value in mask_headers(given)])
        for given in (recording.headers, recording.answer_headers)
    )
    return Entry(
        seq=recording.seq,
        received_ms=recording.received_ms,
        duration_s=recording.duration_s,
        method=recording.method,
        path=kept_path.decode("latin-1"),
        query=kept_query,
        found=found,
        caller=recording.caller,
        request_id=recording.request_id.decode("latin-1"),
        client=recording.client[0] if recording.client else None,
        headers=headers,
        body=body[:BODY_BYTES],
        body_bytes=body_bytes,
        body_is_cut=max(body_bytes, len(body)) > BODY_BYTES or body_bytes > recording.body_bytes,
        has_secrets=kept_path != path or kept_query != query or body != recording.body,
        status=recording.status,
        answer_headers=answer_headers,
        answer=answer[:BODY_BYTES],
        answer_bytes=recording.answer_bytes if answer else 0,
        answer_is_cut=max(recording.answer_bytes if answer else 0, len(answer)) > BODY_BYTES,
        outcome=recording.outcome,
        faults=recording.faults,
        replay_of=recording.replay_of,
        size_bytes=ENTRY_BYTES
        + sum(len(name) + len(value) for name, value in (*headers, *answer_headers))
        + len(kept_path)
        + len(kept_query)
        + min(len(body), BODY_BYTES)
        + min(len(answer), BODY_BYTES),
    )


def _announced(recording: Recording) -> int:
    """How long the body is by its header: one that is refused by its length was not read."""
    for name, value in recording.headers:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
