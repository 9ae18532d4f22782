"""A handler in an interpreter of its own: the agent's side.

The child is started anew for each run (``exec``, never a fork of this process with its threads), in a session of its
own: at a timeout or a cancel its whole process group gets SIGTERM, and SIGKILL after the grace. What it says comes as
lines of JSON on its standard output, what is sent to it goes as such lines to its standard input; what the handler
itself prints goes to standard error. A child that crashes is one failed command.

==========  ==========================================================================================
``type``    members; the child says everything but ``answer``
==========  ==========================================================================================
result      ``result``: what the handler returned
verified    ``outcome``: null (not done), or ``status``, ``result`` and ``error``
failed      ``code``, ``message``: :class:`HandlerFailed`
rejected    ``code``, ``message``: :class:`HandlerRejected`
raised      ``text``: any other exception
progress    ``result``
alive
log         ``level``, ``text``
call        ``name``, ``arguments``: one of the agent's controls
answer      ``value``, or ``error`` (``KeyError``, ``ValueError`` or ``failed``) and ``text``
==========  ==========================================================================================
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Final

from agent.core.values import JsonObject, Outcome, OutcomeStatus
from agent.handlers.base import AgentControls, CommandContext, HandlerFailed, HandlerRejected, Verified
from agent.handlers.loaded import LoadedHandler
from agent.process.running import ProgramEnd, ProgramNotStarted, ProgramRun, last_line, run_program

LINE_BYTES: Final = 512 * 1024
"""The longest line that either side takes: the service takes no larger result either."""

_LOG_LINES_MAX: Final = 200
_SLACK_S: Final = 30.0
_ENDS: Final = frozenset({"result", "verified", "failed", "rejected", "raised"})
# The service manager means this process with them, and its child needs no credentials and no configuration.
_KEPT_BACK: Final = ("DEVICE_AGENT_", "WATCHDOG_", "LISTEN_", "NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY")


def run_isolated(loaded: LoadedHandler, method: str, members: JsonObject, context: CommandContext) -> object:
    """Run ``handle`` or ``verify`` in a child; what it returned.

    Args:
        loaded: the handler.
        method: which of the two.
        members: the payload as it came, without the member that names the handler.
        context: as in the agent.

    Raises:
        HandlerFailed: what the handler raised, or ``crashed``, ``stopped``, ``bad_conversation``, ``not_started``.
        HandlerRejected: likewise.
    """
    conversation = _Conversation(context)
    first = {
        "handler": loaded.name,
        "target": loaded.target,
        "method": method,
        "payload": members,
        "settings": loaded.settings,
        "path": sys.path,
        "level": context.log.getEffectiveLevel(),
        "command_id": context.command_id,
        "device_id": context.device_id,
        "attempt": context.attempt,
        "restarted": context.restarted,
    }
    try:
        run = run_program(
            [sys.executable, "-P", "-m", "agent.handlers.isolated_child"],
            # Its lane ends it; this is for a lane that cannot.
            timeout_s=loaded.timeout_s + _SLACK_S,
            environment={name: value for name, value in os.environ.items() if not name.startswith(_KEPT_BACK)},
            input_bytes=to_line(first),
            stopping=context.stopping,
            alive=context.heartbeat,
            answer=conversation.receive,
        )
    except ProgramNotStarted as error:
        raise HandlerFailed("not_started", f"no process could be started for it: {error}") from error
    return _conclude(run, conversation.end)


def to_line(message: dict[str, Any]) -> bytes:
    """One message; settings out of YAML may hold dates and the like, which travel as text."""
    return json.dumps(message, default=str).encode() + b"\n"


class _Conversation:
    """The exchange of messages between the agent and one child.

    Attributes:
        end: the child's last word; None while it has not spoken it.
    """

    def __init__(self, context: CommandContext) -> None:
        self.end: dict[str, Any] | None = None
        self._context = context
        self._rest = bytearray()
        self._log_lines = 0

    def receive(self, chunk: bytes) -> bytes:
        """Take output of the child; returns the bytes to send to it.

        Raises:
            HandlerFailed: it does not keep to the rules.
        """
        self._rest += chunk
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        if len(rest) > LINE_BYTES:
            raise HandlerFailed("bad_conversation", f"its process said more than {LINE_BYTES} bytes at once")
        return b"".join(self._take(line) for line in lines)

    def _take(self, line: bytes) -> bytes:
        try:
            message = json.loads(line)
            kind = message["type"]
            if self.end is not None:
                return b""
            if kind in _ENDS:
                self.end = message
            elif kind == "progress":
                self._context.report_progress(message["result"])
            elif kind == "log":
                self._log(int(message["level"]), str(message["text"]))
            elif kind == "call":
                return to_line(self._call(message["name"], message["arguments"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            text = f"its process said what it should not: {type(error).__name__}; only the agent's own code may speak"
            raise HandlerFailed("bad_conversation", text) from error
        return b""

    def _log(self, level: int, text: str) -> None:
        self._log_lines += 1
        if self._log_lines <= _LOG_LINES_MAX:
            self._context.log.log(level, "%s", text)
        elif self._log_lines == _LOG_LINES_MAX + 1:
            self._context.log.warning("it logged %d lines; further ones are left out", _LOG_LINES_MAX)

    def _call(self, name: str, arguments: list[Any]) -> dict[str, Any]:
        if name not in control_names():
            return {"type": "answer", "error": "failed", "text": f"control_not_available: there is no {name[:80]!r}"}
        try:
            value = getattr(self._context.controls, name)(*arguments)
            json.dumps(value, allow_nan=False)
        except (KeyError, ValueError) as error:
            kind = "KeyError" if isinstance(error, KeyError) else "ValueError"
            return {"type": "answer", "error": kind, "text": str(error.args[0]) if error.args else ""}
        except Exception as error:  # noqa: BLE001 - the handler gets it, wherever it came from
            return {"type": "answer", "error": "failed", "text": f"control_failed: {type(error).__name__}: {error}"}
        return {"type": "answer", "value": value}


def control_names() -> frozenset[str]:
    """What a handler may ask of the agent, also out of a process of its own: calls, not ``upkeep``."""
    return frozenset(name for name, member in vars(AgentControls).items() if callable(member) and name[0] != "_")


def _conclude(run: ProgramRun, end: dict[str, Any] | None) -> object:
    kind = None if end is None else end["type"]
    if end is None or kind is None:
        diagnostics = last_line(run.diagnostics)
        tail = f"; stderr ended with: {diagnostics}" if diagnostics else ""
        if run.ending is ProgramEnd.EXITED:
            raise HandlerFailed("crashed", f"its process ended without a result, {run.describe_exit()}{tail}")
        raise HandlerFailed("stopped", f"its process was ended because the command had to stop{tail}")
    if kind == "result":
        return end["result"]
    if kind == "verified":
        outcome = end["outcome"]
        if outcome is None:
            return Verified.not_done()
        return Verified(Outcome(OutcomeStatus(outcome["status"]), outcome["result"], outcome["error"]))
    if kind == "raised":
        raise HandlerFailed("handler_error", str(end["text"]))
    raised = HandlerRejected if kind == "rejected" else HandlerFailed
    raise raised(str(end["code"]), str(end["message"]))
