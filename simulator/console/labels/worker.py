"""The process that decodes pictures and makes labels: ``python -m simulator.console.labels.worker``.

Decoders are C and C++: what crashes or never ends in one of them takes this process with it, and not the service. Jobs
come on standard input, one after the other, and answers go to standard output. It ends with its input.

A message is two lengths, big-endian and of four bytes each, then a JSON object and a body of those lengths.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import sys
import traceback
from collections.abc import Mapping
from typing import Any, BinaryIO, Final

from agent.error_text import bounded
from simulator.labels.errors import LabelError
from simulator.labels.symbol.decoders import Decoder, panel

LENGTHS: Final = struct.Struct(">II")
_NICENESS: Final = 5
Answer = tuple[Mapping[str, Any], bytes]


def main() -> None:
    """Work until the input ends."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    if hasattr(os, "nice"):
        os.nice(_NICENESS)  # the service's own requests come first
    readers = panel()
    with contextlib.suppress(BrokenPipeError):
        _write(sink, {"ready": True}, b"")
        while (message := _read(source)) is not None:
            _write(sink, *answer(*message, readers))


def answer(job: Mapping[str, Any], body: bytes, readers: tuple[Decoder, ...]) -> Answer:
    """What a job brings: ``shown``, or ``problem`` with a word and a sentence.

    Args:
        job: ``do`` and its arguments.
        body: a picture's bytes.
        readers: all decoders of this machine.
    """
    try:
        if job["do"] == "decode":
            return _decode(job, body, readers)
        if job["do"] == "draw":
            return _draw(job)
        return _make(job, readers)
    except LabelError as exc:
        return {"problem": {"word": getattr(exc, "word", "labels_not_made"), "text": bounded(str(exc))}}, b""
    except Exception:  # noqa: BLE001 - the service logs it, and the next job is another one
        return {"failure": traceback.format_exc(limit=-5)}, b""


def _decode(job: Mapping[str, Any], body: bytes, readers: tuple[Decoder, ...]) -> Answer:
    from simulator.console.labels.decoding import decode_picture

    return {"shown": decode_picture(body, readers, quick=job["quick"], patience_s=job["patience_s"])}, b""


def _draw(job: Mapping[str, Any]) -> Answer:
    from simulator.console.labels.drawing import draw_text

    return {"shown": {}}, draw_text(job["text"])


def _make(job: Mapping[str, Any], readers: tuple[Decoder, ...]) -> Answer:
    from simulator.console.labels.making import make_order
    from simulator.console.labels.negatives import make_negatives

    order = job["order"]
    make = make_order if order["negatives"] is None else make_negatives
    made = make(order, job["label_key"], two_of(readers))
    return {"shown": dict(made.shown), "media_type": made.media_type, "name": made.name}, made.data


def two_of(readers: tuple[Decoder, ...]) -> tuple[Decoder, ...]:
    """The two quick decoders, where both are there: OpenCV's takes ten times as long as these together."""
    quick = tuple(one for one in readers if one.name != "opencv")
    return quick if len(quick) > 1 else readers


def _read(source: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    head = source.read(LENGTHS.size)
    if len(head) < LENGTHS.size:
        return None
    job_bytes, body_bytes = LENGTHS.unpack(head)
    job, body = source.read(job_bytes), source.read(body_bytes)
    return (json.loads(job), body) if len(body) == body_bytes else None


def _write(sink: BinaryIO, head: Mapping[str, Any], body: bytes) -> None:
    shown = json.dumps(head).encode()
    sink.write(LENGTHS.pack(len(shown), len(body)) + shown)
    sink.write(body)
    sink.flush()


if __name__ == "__main__":
    main()
