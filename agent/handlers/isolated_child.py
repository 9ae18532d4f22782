"""A handler in an interpreter of its own: the child's side (``python -m agent.handlers.isolated_child``).

The handler runs in a thread, while the main thread takes signals and the agent's answers. Without the agent there is
nobody to answer: when its end of the pipe is closed, the child ends at once with its whole process group, so that no
effect comes after the agent has asked how the command ended.

See :mod:`agent.handlers.isolated` for what is said.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, Final, NoReturn

from agent.core.values import JsonObject
from agent.handlers.base import CommandContext, Handler, HandlerFailed, HandlerRejected, Verified
from agent.handlers.isolated import LINE_BYTES, control_names
from agent.handlers.loaded import InvalidPayload, LoadedHandler, ResultTooLarge, copy_result
from agent.plugins import describe, parse_settings

if TYPE_CHECKING:
    from agent.handlers.upkeep import Upkeep

_PR_SET_PDEATHSIG: Final = 1
_LOG_CHARACTERS: Final = 2000


class Sender:
    """Sends messages to the agent, one JSON object a line. Thread-safe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, kind: str, **members: Any) -> None:
        """Send one message to the agent.

        Raises:
            ValueError: it is no JSON, or too long.
        """
        line = json.dumps({"type": kind, **members}, allow_nan=False).encode() + b"\n"
        if len(line) > LINE_BYTES:
            raise ValueError(f"{len(line)} bytes are more than the {LINE_BYTES} that the agent takes")
        with self._lock:
            while line:
                line = line[os.write(self._descriptor, line) :]


class RemoteControls:
    """``CommandContext.controls``: each call goes to the agent and waits for its answer."""

    def __init__(self, sender: Sender, answers: queue.SimpleQueue[dict[str, Any]]) -> None:
        self._sender = sender
        self._answers = answers
        self._lock = threading.Lock()

    @property
    def upkeep(self) -> Upkeep:
        """Refused here: only built-in handlers use it, and they run in the agent's process.

        Raises:
            HandlerFailed: always.
        """
        raise HandlerFailed("control_not_available", "the agent offers no 'upkeep' to a handler's process")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in control_names():
            raise HandlerFailed("control_not_available", f"the agent offers no {name!r} to a handler's process")

        def call(*arguments: Any) -> Any:
            with self._lock:
                self._sender.send("call", name=name, arguments=arguments)
                answer = self._answers.get()
            error, text = answer.get("error"), str(answer.get("text", ""))
            if error == "KeyError":
                raise KeyError(text)
            if error == "ValueError":
                raise ValueError(text)
            if error is not None:
                code, _, message = text.partition(": ")
                raise HandlerFailed(code, message)
            return answer.get("value")

        return call


class _ToAgent(logging.Handler):
    """Log records of the child become log lines of the agent."""

    def __init__(self, sender: Sender) -> None:
        super().__init__()
        self._sender = sender

    def emit(self, record: logging.LogRecord) -> None:
        self._sender.send("log", level=record.levelno, text=self.format(record)[:_LOG_CHARACTERS])


def main() -> NoReturn:
    """Run the one job that comes on standard input."""
    output, source = os.dup(sys.stdout.fileno()), os.dup(sys.stdin.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the handler prints is diagnostics
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    os.close(nothing)
    _end_with_parent()
    sender, answers = Sender(output), queue.SimpleQueue[dict[str, Any]]()
    stopping = threading.Event()

    def on_sigterm(_number: int, _frame: object) -> None:
        if not stopping.is_set():
            stopping.set()

    signal.signal(signal.SIGTERM, on_sigterm)
    lines = _lines(source)
    job = next(lines, None)
    if job is not None:
        threading.Thread(target=_work, args=(job, sender, answers, stopping), name=f"run:{job['handler']}").start()
    for answer in lines:
        answers.put(answer)
    os.killpg(0, signal.SIGKILL)
    raise SystemExit(1)  # not reached: the signal was for this process, too


def _lines(descriptor: int) -> Iterator[dict[str, Any]]:
    with os.fdopen(descriptor, "rb") as stream:
        for line in stream:
            if not line.endswith(b"\n"):  # the agent was killed while it wrote: what is cut is not acted on
                return
            yield json.loads(line)


def _end_with_parent() -> None:
    """Also when the handler holds the interpreter, so that the closed pipe would go unnoticed (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _work(
    job: dict[str, Any], sender: Sender, answers: queue.SimpleQueue[dict[str, Any]], stopping: threading.Event
) -> None:
    try:
        _run(job, sender, answers, stopping)
    except HandlerRejected as error:
        sender.send("rejected", code=error.code, message=error.message[:_LOG_CHARACTERS])
    except HandlerFailed as error:
        sender.send("failed", code=error.code, message=error.message[:_LOG_CHARACTERS])
    except BaseException as error:
        logging.getLogger(__name__).warning("the handler raised", exc_info=True)
        sender.send("raised", text=f"{type(error).__name__}: {error}"[:_LOG_CHARACTERS])
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that the handler left behind must not keep the command waiting.
    os._exit(0)


def _run(
    job: dict[str, Any], sender: Sender, answers: queue.SimpleQueue[dict[str, Any]], stopping: threading.Event
) -> None:
    log = logging.getLogger("agent.handler")
    log.setLevel(job["level"])
    logging.getLogger().addHandler(_ToAgent(sender))
    sys.path += [folder for folder in job["path"] if folder not in sys.path]
    handler, payload = _prepare(job)

    def report_progress(result: JsonObject) -> None:
        try:
            sender.send("progress", result=copy_result(result))
        except ResultTooLarge as error:
            log.warning("its progress is left out: %s", error)
        except (TypeError, ValueError, RecursionError) as error:
            log.warning("its progress cannot travel and is left out: %s", error)

    context = CommandContext(
        command_id=job["command_id"],
        device_id=job["device_id"],
        attempt=job["attempt"],
        restarted=job["restarted"],
        stopping=stopping,
        log=logging.LoggerAdapter(log, {}),
        controls=RemoteControls(sender, answers),
        report_progress=report_progress,
        heartbeat=lambda: sender.send("alive"),
    )
    found = getattr(handler, job["method"])(payload, context)
    try:
        _send_found(found, sender)
    except ResultTooLarge as error:
        raise HandlerFailed("result_too_large", f"it did run, but {error}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise HandlerFailed("bad_result", f"it returned what cannot travel: {error}; it did run") from error


def _send_found(found: JsonObject | Verified | None, sender: Sender) -> None:
    if not isinstance(found, Verified):
        sender.send("result", result=copy_result(found))
    elif found.outcome is None:
        sender.send("verified", outcome=None)
    else:
        outcome = found.outcome
        result = None if outcome.result is None else copy_result(outcome.result)
        error = None if outcome.error is None else outcome.error[:_LOG_CHARACTERS]
        sender.send("verified", outcome={"status": outcome.status, "result": result, "error": error})


def _prepare(job: dict[str, Any]) -> tuple[Handler, Any]:
    """The handler and its payload, made anew in here.

    Raises:
        HandlerFailed: ``handler_error``: here it cannot be what it is in the agent.
        HandlerRejected: the payload is none for it.
    """
    name = job["handler"]
    try:
        found = EntryPoint(name, job["target"], "agent.handlers").load()
        handler = found(parse_settings(found.Settings, job["settings"], f"handler {name!r}"))
    except Exception as error:
        raise HandlerFailed("handler_error", f"it could not be created in its process: {describe(error)}") from error
    loaded = LoadedHandler(name, handler, handler.contract, 0.0, name)
    payload = loaded.validate(job["payload"])
    if isinstance(payload, InvalidPayload):
        raise HandlerRejected(payload.code, payload.message)
    return handler, payload


if __name__ == "__main__":
    main()
