"""Which handlers this agent has, which one a payload names, and the checks of payload and result.

Names decide. Where two handlers want one name, the configuration's executable wins, then the built-in: a package
that happens to be installed never replaces ``reboot`` or ``restart_agent``. Of two packages neither wins. The losers
stay in the listing with status ``clash``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from agent.config.faults import nearest
from agent.config.model import HandlerConfig
from agent.core.values import Contract, JsonObject
from agent.errors import AgentError
from agent.handlers.base import Handler, HandlerRejected
from agent.handlers.executable import Executable, ExecutableSettings
from agent.plugins import (
    BUILT_IN,
    CONFIGURATION,
    PluginFault,
    PluginRegistry,
    PluginStatus,
    create_plugin,
    describe,
    faults_of,
    origin_of,
)
from agent.wire.limits import BODY_BYTES

RESULT_BYTES: Final = BODY_BYTES - 8 * 1024
"""The longest result, as compact JSON text in UTF-8: with what goes around it, it fits into one request."""

# A new built-in handler is a class in this package, a line here, and one in docs/handlers.md.
_BUILT_INS: Final = {
    "cancel": "agent.handlers.basic:Cancel",
    "collect_diagnostics": "agent.handlers.maintenance:CollectDiagnostics",
    "identify": "agent.handlers.basic:Identify",
    "log_level": "agent.handlers.maintenance:LogLevel",
    "ping": "agent.handlers.basic:Ping",
    "read_sensors": "agent.handlers.basic:ReadSensors",
    "reboot": "agent.handlers.root_tasks:Reboot",
    "restart_agent": "agent.handlers.basic:RestartAgent",
    "set_interval": "agent.handlers.basic:SetInterval",
    "update_agent": "agent.handlers.root_tasks:UpdateAgent",
    "update_config": "agent.handlers.maintenance:UpdateConfig",
    "write_file": "agent.handlers.write_file:WriteFile",
}


class HandlerRegistry(PluginRegistry[Handler]):
    """Every handler, configured and checked; a failing one is listed and logged, never raised.

    Args:
        sections: the configuration's ``commands.handlers`` by name.
        executables: the configuration's ``executables`` by name, each checked against ``ExecutableSettings``.
        points: what is installed; None looks it up, once per process.
        safe_mode: only the built-in ones with ``in_safe_mode``; all others are listed, and of those that are
            installed nothing is imported.
    """

    kind = "handler"
    base = Handler
    key = "name"
    group = "agent.handlers"
    built_ins = _BUILT_INS
    limits = ("timeout_s", "start_timeout_s", "inactivity_timeout_s", "stop_timeout_s", "max_attempts")

    def __init__(
        self,
        sections: Mapping[str, HandlerConfig] | None = None,
        executables: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        points: Iterable[EntryPoint] | None = None,
        safe_mode: bool = False,
    ) -> None:
        super().__init__(points)
        sections, executables = sections or {}, executables or {}
        for name in sorted({*executables, *self.points}):
            executable, points = executables.get(name), self.points.get(name, [])
            create = partial(self._create, name, sections.get(name), executable, safe_mode=safe_mode)
            if executable is not None:
                self.add(name, CONFIGURATION, "executable", create)
                winner, losers = "executable of the configuration", points
            else:
                self.add(name, self.origin(name), "class", create)
                winner, losers = "built-in handler", points[1:] if name in self.built_ins else []
            for point in losers:
                reason = f"The name {name!r} belongs to the {winner}, which is used instead."
                self._refuse(name, origin_of(point), PluginStatus.CLASH, reason)
        known = {*executables, *self.points}
        for name in sections.keys() - known:
            reason = f"No handler {name!r} is installed{nearest(name, known)}; correct the name or install it."
            self._refuse(name, CONFIGURATION, PluginStatus.UNKNOWN, reason)

    def find(self, payload: JsonObject, handler_key: str) -> Handler:
        """The handler that a payload names. Runs no code of a handler or its payload.

        Args:
            payload: the whole ``command_payload``.
            handler_key: the member that names the handler, ``command`` by default.

        Raises:
            HandlerRejected: ``missing_command_name``, ``unknown_command`` or ``handler_unusable``.
        """
        name = payload.get(handler_key)
        if not isinstance(name, str) or not name:
            text = f"the payload has no member {handler_key!r} with the name of a handler"
            raise HandlerRejected("missing_command_name", text)
        handler = self.ready.get(name)
        if handler is not None:
            return handler
        shown = name[:80]
        for info in self.listing:
            if info.name == name:
                raise HandlerRejected("handler_unusable", f"handler {shown!r} is {info.status} on this device")
        near = nearest(shown, self.ready)
        raise HandlerRejected("unknown_command", f"this device has no handler {shown!r}{near}")

    def _refuse(self, name: str, origin: str, status: PluginStatus, reason: str) -> None:
        def create() -> Handler:
            raise PluginFault(status, reason)

        self.add(name, origin, "class", create)

    def _create(
        self, name: str, section: HandlerConfig | None, executable: Mapping[str, Any] | None, *, safe_mode: bool
    ) -> Handler:
        if section is not None and not section.enabled:
            raise PluginFault(PluginStatus.DISABLED, f"The configuration switched handler {name!r} off.")
        left_alone = PluginFault(
            PluginStatus.SAFE_MODE, f"The agent is in safe mode, where handler {name!r} is left alone."
        )
        if safe_mode and (executable is not None or self.origin(name) != BUILT_IN):
            raise left_alone
        if executable is not None:
            handler: Handler = create_plugin(
                partial(Executable, name), ExecutableSettings, executable, f"executable {name!r}"
            )
        else:
            handler_class = self.load_class(name)
            if safe_mode and not handler_class.in_safe_mode:
                raise left_alone
            if handler_class.needs and section is None:
                raise PluginFault(PluginStatus.DISABLED, f"Handler {name!r} is off: it needs {handler_class.needs}.")
            settings = {} if section is None else section.settings
            handler = create_plugin(handler_class, handler_class.Settings, settings, f"handler {name!r}")
        if section is not None and section.timeout_s is not None:
            handler.timeout_s = section.timeout_s
        try:
            handler.contract = Contract(handler.contract)
        except ValueError:
            reason = f"handler {name!r}: its contract must be one of {', '.join(Contract)}: correct its class."
            raise PluginFault(PluginStatus.NOT_LOADED, reason) from None
        return handler


def read_payload(handler: Handler, members: JsonObject) -> BaseModel:
    """The payload as the handler's model. Strict: ``"1"`` is no number.

    Runs code of the handler's package, its validators, which may take as long as it likes.

    Args:
        handler: whose ``Payload`` it is.
        members: the ``command_payload`` without the member that names the handler.

    Raises:
        HandlerRejected: ``invalid_payload``; the text names the member.
    """
    model = handler.Payload
    try:
        # JSON mode, since its strictness knows that a time or an enum travels as text.
        return model.model_validate_json(json.dumps(members), strict=True)
    except ValidationError as error:
        fault = faults_of(error, model)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in's own validator may raise anything
        fault = describe(error)
    raise HandlerRejected("invalid_payload", f"payload of {handler.name!r}: {fault}")


class ResultTooLarge(AgentError):
    """A result is longer than :data:`RESULT_BYTES`."""

    def __init__(self) -> None:
        super().__init__(f"its result is more than {RESULT_BYTES} bytes of JSON: return less of it")


def copy_result(result: object) -> Any:
    """The result as JSON brings it to the other side; the handler may go on changing its own.

    Raises:
        ResultTooLarge: it is; no more than the limit of its text is ever in memory, beside its longest string.
        TypeError, ValueError, RecursionError: it is no JSON.
    """
    text: list[str] = []
    left = RESULT_BYTES
    for part in json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).iterencode(result):
        # A lone surrogate is refused later, where results are sent, with its own sentence.
        left -= len(part.encode("utf-8", "surrogatepass"))
        if left < 0:
            raise ResultTooLarge
        text.append(part)
    return json.loads("".join(text))
