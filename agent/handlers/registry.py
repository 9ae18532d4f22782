"""Which handlers this agent has: built-in, installed (entry-point group ``agent.handlers``) and executables.

Names decide. Where two handlers want one name, the configuration's executable wins, then the built-in: a package
that happens to be installed never replaces ``reboot`` or ``restart_agent``. Of two packages neither wins. The losers
stay in the listing with status ``clash``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any, Final

from agent.config.faults import nearest
from agent.config.model import HandlerConfig
from agent.core.values import Contract, JsonObject
from agent.handlers.base import Handler, HandlerRejected
from agent.handlers.executable import Executable, ExecutableSettings
from agent.plugins import (
    BUILT_IN,
    CONFIGURATION,
    PluginClasses,
    PluginFault,
    PluginRegistry,
    PluginStatus,
    check_numbers,
    create_plugin,
    origin_of,
)

GROUP: Final = "agent.handlers"

_LIMITS: Final = ("timeout_s", "start_timeout_s", "inactivity_timeout_s", "stop_timeout_s", "max_attempts")

# A new built-in handler is a class in this package, a line here, and one in docs/handlers.md.
_BUILT_INS: Final[Mapping[str, str]] = {
    "cancel": "agent.handlers.basic:Cancel",
    "collect_diagnostics": "agent.handlers.maintenance:CollectDiagnostics",
    "identify": "agent.handlers.basic:Identify",
    "log_level": "agent.handlers.maintenance:LogLevel",
    "ping": "agent.handlers.basic:Ping",
    "read_sensors": "agent.handlers.basic:ReadSensors",
    "reboot": "agent.handlers.reboot:Reboot",
    "restart_agent": "agent.handlers.basic:RestartAgent",
    "set_interval": "agent.handlers.basic:SetInterval",
    "update_agent": "agent.handlers.update_agent:UpdateAgent",
    "update_config": "agent.handlers.maintenance:UpdateConfig",
    "write_file": "agent.handlers.write_file:WriteFile",
}


class HandlerRegistry(PluginRegistry[Handler]):
    """Every handler by name, the unusable ones with their reason."""

    kind = "handler"

    @classmethod
    def load(
        cls,
        sections: Mapping[str, HandlerConfig] | None = None,
        executables: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        entry_points: Iterable[EntryPoint] | None = None,
        safe_mode: bool = False,
    ) -> HandlerRegistry:
        """Load, configure and check every handler; a failing one is listed and logged, never raised.

        Args:
            sections: the configuration's ``commands.handlers`` by name.
            executables: the configuration's ``executables`` by name, each checked against ``ExecutableSettings``.
            entry_points: what is installed; None looks it up, once per process.
            safe_mode: only the built-in ones with ``in_safe_mode``; all others are listed, and of those that are
                installed nothing is imported.
        """
        registry, sections, executables = cls(), sections or {}, executables or {}
        classes = PluginClasses(Handler, "name", _BUILT_INS, GROUP, entry_points)  # type: ignore[type-abstract]
        origins = classes.origins()
        for name in sorted({*executables, *origins}):
            section = sections.get(name)
            if name in executables:
                create = partial(_create_executable, name, section, executables[name], safe_mode=safe_mode)
                registry.add(name, CONFIGURATION, "executable", create)
                create = partial(_fail, PluginStatus.CLASH, f"The configuration's executable {name!r} is used instead.")
            else:
                create = partial(_create, name, section, classes, safe_mode=safe_mode)
            if name in origins:
                registry.add(name, origins[name], "class", create)
        for point in classes.replaced():
            reason = f"The name {point.name!r} belongs to the built-in handler: give it another name or uninstall it."
            registry.add(point.name, origin_of(point), "class", partial(_fail, PluginStatus.CLASH, reason))
        known = {*executables, *origins}
        for name in sections.keys() - known:
            reason = f"No handler {name!r} is installed{nearest(name, known)}; correct the name or install it."
            registry.add(name, CONFIGURATION, "", partial(_fail, PluginStatus.UNKNOWN, reason))
        return registry

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
        handler = self.get(name)
        if handler is not None:
            return handler
        shown = name[:80]
        for info in self.listing():
            if info.name == name:
                raise HandlerRejected("handler_unusable", f"handler {shown!r} is {info.status} on this device")
        near = nearest(shown, self.names())
        raise HandlerRejected("unknown_command", f"this device has no handler {shown!r}{near}")


def _fail(status: PluginStatus, reason: str) -> Handler:
    raise PluginFault(status, reason)


def _create(name: str, section: HandlerConfig | None, classes: PluginClasses[Handler], *, safe_mode: bool) -> Handler:
    _refuse_disabled(name, section)
    if safe_mode and classes.origin(name) != BUILT_IN:
        raise _skipped_in_safe_mode(name)
    handler_class = classes.load(name)
    if safe_mode and not handler_class.in_safe_mode:
        raise _skipped_in_safe_mode(name)
    if handler_class.needs and section is None:
        raise PluginFault(PluginStatus.DISABLED, f"Handler {name!r} is off: it needs {handler_class.needs}.")
    settings = {} if section is None else section.settings
    return _with_limits(create_plugin(handler_class, handler_class.Settings, settings, f"handler {name!r}"), section)


def _create_executable(
    name: str, section: HandlerConfig | None, settings: Mapping[str, Any], *, safe_mode: bool
) -> Handler:
    _refuse_disabled(name, section)
    if safe_mode:
        raise _skipped_in_safe_mode(name)
    return _with_limits(
        create_plugin(partial(Executable, name), ExecutableSettings, settings, f"executable {name!r}"), section
    )


def _refuse_disabled(name: str, section: HandlerConfig | None) -> None:
    if section is not None and not section.enabled:
        raise PluginFault(PluginStatus.DISABLED, f"The configuration switched handler {name!r} off.")


def _skipped_in_safe_mode(name: str) -> PluginFault:
    return PluginFault(PluginStatus.SAFE_MODE, f"The agent is in safe mode, where handler {name!r} is left alone.")


def _with_limits(handler: Handler, section: HandlerConfig | None) -> Handler:
    if section is not None and section.timeout_s is not None:
        handler.timeout_s = section.timeout_s
    owner = f"handler {handler.name!r}"
    check_numbers(handler, _LIMITS, owner)
    try:
        handler.contract = Contract(handler.contract)
    except ValueError:
        reason = f"{owner}: its contract must be one of {', '.join(Contract)}: correct its class."
        raise PluginFault(PluginStatus.NOT_LOADED, reason) from None
    return handler
