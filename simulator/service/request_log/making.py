"""What is kept of a request: cut, and without its secrets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from simulator.service.answers import Header
from simulator.service.request_log.entry import BODY_BYTES, ENTRY_BYTES, Entry
from simulator.service.request_log.logged_paths import LoggedPath
from simulator.service.request_log.masking import mask_body, mask_headers, mask_query, read_headers
from simulator.service.request_log.recording import Recording

_QUERY_MAX: Final = 4_096
"""Of a longer query the beginning is kept."""


def take_secrets_out(recording: Recording, path: LoggedPath) -> None:
    """Leave of a request what is kept of it.

    Args:
        recording: the request, as far as it has come.
        path: what the logs say of its path.
    """
    recording.logged_path, recording.raw_path = path, b""
    given, query = recording.body, recording.query
    body = mask_body(given, is_partner_access=path.is_partner_access)
    if query:
        recording.query = mask_query(query)[:_QUERY_MAX]
    recording.has_secrets = body != given or path.has_secrets or recording.query != query
    answer = b"" if recording.method == "HEAD" else recording.answer
    answer = mask_body(answer, is_partner_access=path.is_partner_access)
    if len(body) > BODY_BYTES:
        body = body[: BODY_BYTES + 1]  # one more than is shown says that it is longer
    if len(answer) > BODY_BYTES:
        answer = answer[: BODY_BYTES + 1]
    recording.body, recording.answer = body, answer
    recording.kept_headers = headers = mask_headers(recording.headers)
    recording.kept_answer_headers = answer_headers = mask_headers(recording.answer_headers)
    recording.headers = recording.answer_headers = ()
    recording.size_bytes = ENTRY_BYTES + len(query) + len(body) + len(answer) + len(headers) + len(answer_headers)


def make_entry(recording: Recording, path: LoggedPath) -> Entry:
    """What the log shows of a request whose secrets are out."""
    headers, answer_headers = read_headers(recording.kept_headers), read_headers(recording.kept_answer_headers)
    body_bytes = max(recording.body_bytes, _announced(headers))
    answer_bytes = recording.answer_bytes if recording.answer else 0
    return Entry(
        seq=recording.seq,
        received_ms=recording.received_ms,
        duration_s=recording.duration_s,
        method=recording.method,
        path=path.raw.decode("latin-1"),
        query=recording.query,
        found=path.found,
        caller=recording.caller,
        request_id=recording.request_id.decode("latin-1"),
        client=recording.client[0] if recording.client else None,
        headers=headers,
        body=recording.body[:BODY_BYTES],
        body_bytes=body_bytes,
        body_is_cut=max(body_bytes, len(recording.body)) > BODY_BYTES or body_bytes > recording.body_bytes,
        has_secrets=recording.has_secrets,
        status=recording.status,
        answer_headers=answer_headers,
        answer=recording.answer[:BODY_BYTES],
        answer_bytes=answer_bytes,
        answer_is_cut=max(answer_bytes, len(recording.answer)) > BODY_BYTES,
        outcome=recording.outcome,
        faults=recording.faults,
    )


def _announced(headers: Iterable[Header]) -> int:
    """How long the body is by its header: one that is refused by its length was not read."""
    for name, value in headers:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
