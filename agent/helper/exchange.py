"""The files between agent and helper: one request, one answer, each file whole at every instant.

The request lies in the agent's own runtime directory, the answer in the helper's, which the agent can only read. Both
are RAM disks, so a power cut forgets them. The side that deletes the request has it: the helper to act on it, the agent
to withdraw it. There is no third case.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

REQUEST: Final = Path("/run/device-agent/request.json")
ANSWER: Final = Path("/run/device-agent-helper/answer.json")
MAX_BYTES: Final = 4096

ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"
FAILED: Final = "failed"

_MAX_CHARACTERS: Final = 512


class MalformedFile(ValueError):
    """A file of the exchange that is not what it should be; the text says why."""


@dataclass(frozen=True, slots=True)
class HelperRequest:
    """The request of the agent.

    Attributes:
        id: repeated in the answer.
        action: one word of the allow-list.
        asked_s: when, by :func:`now_s`. A request is good for a minute: one that lay around means nothing.
    """

    id: str
    action: str
    asked_s: float


@dataclass(frozen=True, slots=True)
class HelperAnswer:
    """The answer of the helper.

    Attributes:
        id: of the request.
        state: :data:`ACCEPTED` (written before the action), :data:`REFUSED`, or :data:`FAILED` after it was accepted.
        code: one word that says why; empty when accepted.
        message: a sentence that says why; empty when accepted.
    """

    id: str
    state: str
    code: str = ""
    message: str = ""


def parse_request(data: bytes) -> HelperRequest:
    """The request out of the file's bytes.

    Raises:
        MalformedFile: anything but one JSON object with exactly the known members: short printable texts, one number.
    """
    members = _members(data, HelperRequest)
    asked_s = members.pop("asked_s")
    if isinstance(asked_s, bool) or not isinstance(asked_s, int | float):
        raise MalformedFile("the member asked_s is no number")
    return HelperRequest(**_texts(members), asked_s=float(asked_s))


def read_answer(path: Path, request_id: str) -> HelperAnswer | None:
    """The answer to this request; None while there is none."""
    try:
        with path.open("rb") as file:
            answer = HelperAnswer(**_texts(_members(file.read(MAX_BYTES + 1), HelperAnswer)))
    except (OSError, MalformedFile):
        return None
    return answer if answer.id == request_id else None


def write_file(path: Path, content: HelperRequest | HelperAnswer, mode: int) -> None:
    """Write beside it and rename. Not synced: it is meant for this boot alone.

    Raises:
        OSError: it could not be written.
    """
    temporary = path.with_name(f".{path.name}.new")
    # What a killed process left must not be written into: it may be open elsewhere, or a link.
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, mode)
        file.write(json.dumps(asdict(content)).encode())
    temporary.replace(path)


def now_s() -> float:
    """Seconds since the kernel started, also while it slept: one clock for both sides, whatever the wall clock says."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _members(data: bytes, kind: type[HelperRequest | HelperAnswer]) -> dict[str, object]:
    if len(data) > MAX_BYTES:
        raise MalformedFile(f"larger than {MAX_BYTES} bytes")
    try:
        found = json.loads(data, object_pairs_hook=_without_repeats, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise MalformedFile("no JSON text") from error
    names = {field.name for field in fields(kind)}
    if not isinstance(found, dict) or set(found) != names:
        raise MalformedFile(f"not an object with exactly the members {', '.join(sorted(names))}")
    return found


def _texts(members: dict[str, object]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, value in members.items():
        if not isinstance(value, str) or len(value) > _MAX_CHARACTERS or (value and not value.isprintable()):
            raise MalformedFile(f"the member {name} is no short text")
        texts[name] = value
    return texts


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A name that stands twice is read differently by different readers: it is refused."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _no_constant(text: str) -> object:
    """``NaN`` and ``Infinity`` are no JSON, and compare with nothing."""
    raise ValueError(text)
