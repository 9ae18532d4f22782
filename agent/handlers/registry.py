"""Which handlers this agent has: built-in, installed (entry-point group ``agent.handlers``) and executables.

Names decide. Where two handlers want one name, the configuration's executable wins, then the built-in: a package
that happens to be installed never replaces ``run`` or ``restart_agent``. Of two packages neither wins, since the order
of installation must not decide what a command does. The losers stay in the listing with status ``clash``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint
from pkgutil import iter_modules
from typing import Any, Final, cast

from agent.config.commands import HandlerConfig
from agent.core.values import JsonObject
from agent.handlers import built_in
from agent.handlers.base import Handler
from agent.handlers.loaded import InvalidPayload, LoadedHandler
from agent.plugins import (
    PluginFault,
    PluginInfo,
    PluginStatus,
    describe,
    installed_entry_points,
    load_entry_point,
    nearest,
    origin_of,
    parse_settings,
)

GROUP: Final = "agent.handlers"
BUILT_IN: Final = "built-in"
CONFIGURATION: Final = "configuration"
_NO_NAME: Final = "missing_command_name"

_log = logging.getLogger(__name__)


class HandlerRegistry:
    """Every handler by name, the unusable ones with their reason."""

    def __init__(self, handlers: Mapping[str, LoadedHandler], listing: Iterable[PluginInfo]) -> None:
        self._handlers = dict(handlers)
        self._listing = sorted(listing, key=lambda info: (info.name, info.origin))
        self._unusable = {info.name: info for info in self._listing if info.name not in self._handlers}

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
        points = installed_entry_points(GROUP) if entry_points is None else tuple(entry_points)
        loading = _Loading(sections or {}, safe_mode=safe_mode)
        loading.add_executables(executables or {})
        loading.add_built_ins()
        loading.add_entry_points(points)
        loading.note_unknown_sections()
        for info in loading.listing:
            if info.status not in {PluginStatus.READY, PluginStatus.DISABLED, PluginStatus.SAFE_MODE}:
                _log.warning("handler %s is %s: %s", info.name, info.status, info.reason)
        return cls(loading.handlers, loading.listing)

    def get(self, name: str) -> LoadedHandler | None:
        """The handler of this name, if it is ready."""
        return self._handlers.get(name)

    def names(self) -> list[str]:
        """The names of the ready handlers, sorted."""
        return sorted(self._handlers)

    def listing(self) -> list[PluginInfo]:
        """Every handler that was found or configured, sorted by name, with its status."""
        return list(self._listing)

    def find(self, payload: JsonObject, handler_key: str) -> LoadedHandler | InvalidPayload:
        """The handler that a payload names, or why the command is rejected. Runs no code of a handler or its payload.

        Args:
            payload: the whole ``command_payload``.
            handler_key: the member that names the handler, ``command`` by default.
        """
        if handler_key not in payload:
            return InvalidPayload(_NO_NAME, f"the payload has no member {handler_key!r} that names a handler")
        name = payload[handler_key]
        if not isinstance(name, str) or not name:
            return InvalidPayload(_NO_NAME, f"the payload's {handler_key!r} must be the name of a handler")
        loaded = self._handlers.get(name)
        if loaded is not None:
            return loaded
        shown = name[:80]
        info = self._unusable.get(name)
        if info is not None:
            return InvalidPayload("handler_unusable", f"handler {shown!r} is {info.status} on this device")
        near = nearest(shown, self._handlers)
        return InvalidPayload("unknown_command", f"this device has no handler {shown!r}{near}")


class _Loading:
    """One pass over the three origins; the first that takes a name keeps it."""

    def __init__(self, sections: Mapping[str, HandlerConfig], *, safe_mode: bool = False) -> None:
        self._safe_mode = safe_mode
        self.handlers: dict[str, LoadedHandler] = {}
        self.listing: list[PluginInfo] = []
        self._sections = sections
        self._owners: dict[str, str] = {}

    def add_executables(self, executables: Mapping[str, Mapping[str, Any]]) -> None:
        """Add the executables of the configuration."""
        for name, settings in executables.items():
            self._owners[name] = CONFIGURATION
            self._add(name, CONFIGURATION, partial(_executable, name, settings))

    def add_built_ins(self) -> None:
        """Add the built-in handlers, unless an executable of the configuration has the name."""
        for name in sorted(module.name for module in iter_modules(built_in.__path__)):
            if name in self._owners:
                self._clash(name, BUILT_IN, f"the configuration's executable {name!r} is used instead of the built-in")
                continue
            self._owners[name] = BUILT_IN
            self._add(name, BUILT_IN, partial(self._built_in, name))

    def add_entry_points(self, points: Iterable[EntryPoint]) -> None:
        """Add installed handlers, unless the name is taken or two packages want it."""
        by_name: dict[str, list[EntryPoint]] = {}
        for point in points:
            by_name.setdefault(point.name, []).append(point)
        for name, rivals in by_name.items():
            for point in rivals:
                owner = self._owners.get(name)
                if owner is not None:
                    fix = "give it another name or uninstall it"
                    self._clash(name, origin_of(point), f"the name {name!r} belongs to the {owner} handler: {fix}")
                elif len(rivals) > 1:
                    packages = ", ".join(sorted(origin_of(rival) for rival in rivals))
                    self._clash(name, origin_of(point), f"{packages} all bring {name!r}: uninstall all but one")
                else:
                    self._add(name, origin_of(point), partial(self._installed, name, point))
        self._owners |= {name: "installed" for name in by_name if name not in self._owners}

    def note_unknown_sections(self) -> None:
        """List sections without a handler: a typo, or a package that is missing."""
        for name in self._sections:
            if name not in self._owners:
                reason = f"no handler {name!r} is installed{nearest(name, self._owners)}; mend the name or install it."
                self.listing.append(PluginInfo(name, "handler", CONFIGURATION, PluginStatus.UNKNOWN, reason))

    def _clash(self, name: str, origin: str, reason: str) -> None:
        sentence = reason[:1].upper() + reason[1:] + "."
        self.listing.append(PluginInfo(name, "handler", origin, PluginStatus.CLASH, sentence))

    def _add(self, name: str, origin: str, create: Callable[[], Handler]) -> None:
        section = self._sections.get(name, HandlerConfig())
        if not section.enabled:
            reason = f"The configuration switched handler {name!r} off."
            self.listing.append(PluginInfo(name, "handler", origin, PluginStatus.DISABLED, reason))
            return
        try:
            if self._safe_mode and origin != BUILT_IN:
                raise _skipped_in_safe_mode(name)
            handler = create()
            _check(name, handler)
        except PluginFault as fault:
            self.listing.append(PluginInfo(name, "handler", origin, fault.status, fault.reason))
            return
        timeout_s = handler.run_timeout_s() if section.timeout_s is None else section.timeout_s
        loaded = LoadedHandler(
            name,
            handler,
            handler.contract,
            timeout_s,
            handler.lane or name,
            start_timeout_s=handler.start_timeout_s,
            inactivity_timeout_s=handler.inactivity_timeout_s,
            max_attempts=handler.max_attempts,
        )
        self.handlers[name] = loaded
        self.listing.append(
            PluginInfo(
                name,
                "handler",
                origin,
                PluginStatus.READY,
                type="executable" if origin == CONFIGURATION else "class",
                contract=str(loaded.contract),
                timeout_s=loaded.timeout_s,
                description=handler.description,
            )
        )

    def _built_in(self, name: str) -> Handler:
        found = _built_in_class(name)
        if self._safe_mode and not found.in_safe_mode:
            raise _skipped_in_safe_mode(name)
        return self._create(name, found)

    def _installed(self, name: str, point: EntryPoint) -> Handler:
        found = load_entry_point(point)
        if not _is_handler(found):
            hint = "a function needs the decorator @handler" if callable(found) else "it must be a class"
            reason = f"{point.value} from {origin_of(point)} is no agent.Handler: {hint}."
            raise PluginFault(PluginStatus.NOT_A_PLUGIN, reason)
        own_name = getattr(found, "name", None)
        if own_name != name:
            reason = f"Entry point {name!r} of {origin_of(point)} holds the handler {own_name!r}: give both one name."
            raise PluginFault(PluginStatus.NOT_A_PLUGIN, reason)
        return self._create(name, found)

    def _create(self, name: str, handler_class: type[Handler]) -> Handler:
        if handler_class.needs and name not in self._sections:
            raise PluginFault(PluginStatus.DISABLED, f"Handler {name!r} is off: it needs {handler_class.needs}.")
        section = self._sections.get(name, HandlerConfig())
        settings = parse_settings(handler_class.Settings, section.settings, f"handler {name!r}")
        try:
            return handler_class(settings)
        except (Exception, SystemExit) as error:
            reason = f"handler {name!r} could not be created: {describe(error)}."
            raise PluginFault(PluginStatus.NOT_CREATED, reason) from error


def _skipped_in_safe_mode(name: str) -> PluginFault:
    return PluginFault(PluginStatus.SAFE_MODE, f"The agent is in safe mode, where handler {name!r} is left alone.")


def _built_in_class(name: str) -> type[Handler]:
    """The handler of the module ``agent.handlers.built_in.NAME``.

    Raises:
        PluginFault: the module cannot be imported: a disk that fails, half an installation.
    """
    try:
        module = import_module(f"{built_in.__name__}.{name}")
        (found,) = [each for each in vars(module).values() if _is_handler(each) and each.__module__ == module.__name__]
    except (Exception, SystemExit) as error:
        reason = f"The built-in handler {name!r} could not be imported: {describe(error)}; install device-agent again."
        raise PluginFault(PluginStatus.NOT_LOADED, reason) from error
    return cast("type[Handler]", found)


def _is_handler(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Handler)


def _executable(name: str, settings: Mapping[str, Any]) -> Handler:
    # Only here: a device without executables does not carry what runs them.
    from agent.handlers.executable import Executable, ExecutableSettings

    parsed = parse_settings(ExecutableSettings, settings, f"executable {name!r}")
    assert isinstance(parsed, ExecutableSettings)  # noqa: S101 - parse_settings gives what it was asked for
    if not parsed.enabled:
        raise PluginFault(PluginStatus.DISABLED, f"The configuration switched executable {name!r} off.")
    return Executable(name, parsed)


def _check(name: str, handler: Handler) -> None:
    limits = {"start_timeout_s": handler.start_timeout_s, "inactivity_timeout_s": handler.inactivity_timeout_s}
    wrong = [limit for limit, seconds in limits.items() if seconds is not None and seconds <= 0]
    wrong += ["max_attempts"] if handler.max_attempts < 1 else []
    if wrong:
        reason = f"handler {name!r}: its {' and '.join(wrong)} must be above 0: mend the class."
        raise PluginFault(PluginStatus.NOT_A_PLUGIN, reason)
    try:
        handler.check()
    except (Exception, SystemExit) as error:
        raise PluginFault(
            PluginStatus.CHECK_FAILED, f"handler {name!r} cannot work here: {describe(error)}."
        ) from error
