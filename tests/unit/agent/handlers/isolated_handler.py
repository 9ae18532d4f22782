"""A handler for the tests of isolation: in a module of its own, so that its child imports little."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from pydantic import field_validator

from agent.core.values import Contract
from agent.handlers.base import CommandContext, Handler, HandlerFailed, HandlerPayload, HandlerRejected, Verified
from agent.handlers.isolated import LINE_BYTES

SOON_S = 60.0


class Isolated(Handler):
    """Does what it is told. The child imports it from here."""

    name = "isolated"
    isolation = "process"
    contract = Contract.ONCE

    class Payload(HandlerPayload):
        do: str
        path: str = ""

        @field_validator("do")
        @classmethod
        def judge(cls, do: str) -> str:
            if do == "die while judged":
                os._exit(9)
            return do

    def handle(self, payload: Payload, context: CommandContext):
        return getattr(self, f"_{payload.do}")(payload, context)

    def verify(self, payload: Payload, context: CommandContext) -> Verified | None:
        return {
            "done": Verified.succeeded({"opened": 3}),
            "failed": Verified.failed("stuck", "the valve is stuck"),
            "undone": Verified.not_done(),
        }.get(payload.do)

    def _answer(self, payload, context):
        return {
            "process": os.getpid(),
            "group": os.getpgid(0),
            "command_id": context.command_id,
            "device_id": context.device_id,
            "attempt": context.attempt,
            "restarted": context.restarted,
        }

    def _nothing(self, payload, context):
        return None

    def _fail(self, payload, context):
        raise HandlerFailed("stuck", "the valve is stuck")

    def _reject(self, payload, context):
        raise HandlerRejected("no_power", "there is no power")

    def _raise(self, payload, context):
        raise ZeroDivisionError("by nought")

    def _object(self, payload, context):
        return {"x": object()}

    def _huge(self, payload, context):
        return {"x": "x" * LINE_BYTES}

    def _abort(self, payload, context):
        os.abort()

    def _exit(self, payload, context):
        os._exit(0)

    def _shout(self, payload, context):
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, b"not JSON\n")
            except OSError:
                continue

    def _controls(self, payload, context):
        controls = context.controls
        errors = []
        for name, arguments in (
            ("set_interval", ("nobody", 5.0)),
            ("set_interval", ("board", 0.5)),
            ("format_the_disk", ()),
        ):
            try:
                getattr(controls, name)(*arguments)
            except (KeyError, ValueError, HandlerFailed) as error:
                errors.append(type(error).__name__)
        controls.request_restart("because")
        return {"interval_s": controls.set_interval("board", 5.0), "identity": controls.identity(), "errors": errors}

    def _tell(self, payload, context):
        context.report_progress({"percent": 50})
        context.log.info("half way")
        logging.getLogger("driver").warning("the bus is slow")
        logging.getLogger("driver").info("not asked for")

    def _heed(self, payload, context):
        Path(payload.path).touch()
        return {"heeded": context.stopping.wait(SOON_S)}

    def _hang(self, payload, context):
        grandchild = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        Path(payload.path).write_text(f"{os.getpid()} {grandchild.pid}")
        threading.Event().wait(600)

    def _environment(self, payload, context):
        return dict(os.environ)
