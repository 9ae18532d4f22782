"""What handlers and sensors share as plug-ins: discovery, status, and sentences about faults.

A plug-in goes through load, settings, creation and self-check. One that fails has a status and one full sentence with
the fix; nothing here ever ends the agent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from agent.config.faults import nearest, sentences

if TYPE_CHECKING:
    from agent.health import Part

BUILT_IN: Final = "built-in"
CONFIGURATION: Final = "configuration"
NOT_READ_YET: Final = "not read yet"
"""The state of a sensor, in :func:`states_of`, until it is read for the first time."""
_FAULTS_SHOWN: Final = 3

_log = logging.getLogger(__name__)


class PluginStatus(StrEnum):
    """How far a plug-in came."""

    READY = "ready"
    DISABLED = "disabled"
    """The configuration switched it off."""
    UNKNOWN = "unknown"
    """The configuration names something that is not installed."""
    CLASH = "clash"
    """Another one of the same name was preferred, or none could be."""
    NOT_LOADED = "not_loaded"
    """Importing or creating it failed, or it is not what the group promises."""
    INVALID_SETTINGS = "invalid_settings"
    SAFE_MODE = "left_alone_in_safe_mode"
    """The agent is in safe mode, and it is nothing that repairs the device."""
    CHECK_FAILED = "check_failed"
    """Its own check says that it cannot work here."""
    FAILING = "failing"
    """It was loaded, and does not work."""


_ON_PURPOSE: Final = frozenset({PluginStatus.READY, PluginStatus.DISABLED, PluginStatus.SAFE_MODE})


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """One line of ``device-agent plugins list``.

    Attributes:
        name: the handler's name, or the name that the configuration gives the sensor.
        kind: ``handler`` or ``sensor``.
        origin: ``built-in``, ``configuration`` or the distribution and its version, such as ``door-plugin 1.2.0``.
        status: how far it came; only ``ready`` ones are used.
        reason: one full sentence that names the fix; empty when ``ready``.
        type: a sensor's type; for a handler ``class`` or ``executable``.
        contract: a handler's contract; empty when it is not known.
        timeout_s: how long one run or read may take; None when it is not known.
        description: one line for a person.
    """

    name: str
    kind: str
    origin: str
    status: PluginStatus
    reason: str = ""
    type: str = ""
    contract: str = ""
    timeout_s: float | None = None
    description: str = ""


class PluginFault(Exception):
    """One plug-in stopped at one step; :class:`PluginRegistry` turns it into a :class:`PluginInfo`."""

    def __init__(self, status: PluginStatus, reason: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(reason)


class Plugin(Protocol):
    """What a registry needs of a handler or a sensor."""

    description: str
    timeout_s: float

    def check(self) -> None:
        """Raise what makes it useless here."""


AnyPlugin = TypeVar("AnyPlugin", bound=Plugin)


class PluginRegistry(Generic[AnyPlugin]):
    """The plug-ins of one kind by name, the unusable ones with their reason.

    A class is built in or comes from an entry point of :attr:`group`, and is imported only when it is used. A package
    never replaces a built-in one. Of two packages that bring one name neither is used: the order of installation must
    not decide.

    Args:
        points: what is installed; None looks it up, once per process.

    Attributes:
        kind: ``handler`` or ``sensor``.
        base: of all classes.
        key: the attribute that holds a class's own name.
        group: of the entry points.
        built_ins: name -> ``module:attribute``.
        limits: attributes that must be a number above 0, or None for no limit.
        ready: those that can be used by name, in the listing's order.
        listing: every one that was found or configured, with its status.
        points: the classes that could be used by name; a built-in one comes first.
    """

    kind: ClassVar[str]
    base: ClassVar[type]
    key: ClassVar[str]
    group: ClassVar[str]
    built_ins: ClassVar[Mapping[str, str]]
    limits: ClassVar[tuple[str, ...]] = ("timeout_s",)

    def __init__(self, points: Iterable[EntryPoint] | None = None) -> None:
        self.ready: dict[str, AnyPlugin] = {}
        self.listing: list[PluginInfo] = []
        self.points = {name: [EntryPoint(name, value, BUILT_IN)] for name, value in self.built_ins.items()}
        for point in installed_entry_points(self.group) if points is None else points:
            self.points.setdefault(point.name, []).append(point)

    def add(self, name: str, origin: str, type_name: str, create: Callable[[], AnyPlugin]) -> None:
        """Create one and list it with its status; whatever it raises is logged and listed, never raised."""
        info = PluginInfo(name, self.kind, origin, PluginStatus.READY, type=type_name)
        try:
            plugin = create()
            values = {limit: getattr(plugin, limit) for limit in self.limits}
            wrong = [limit for limit, value in values.items() if value is not None and not _is_positive(value)]
            if wrong:
                reason = f"{self.kind} {name!r}: {' and '.join(wrong)} must be a number above 0: correct its class."
                raise PluginFault(PluginStatus.NOT_LOADED, reason)
            contract = str(getattr(plugin, "contract", ""))
            info = replace(info, contract=contract, timeout_s=plugin.timeout_s, description=str(plugin.description))
            self.ready[name] = plugin
        except PluginFault as fault:
            info = replace(info, status=fault.status, reason=fault.reason)
            if fault.status not in _ON_PURPOSE:
                _log.warning("%s %s is %s: %s", self.kind, name, fault.status, fault.reason)
        self.listing.append(info)

    def origins(self) -> dict[str, str]:
        """The name of each class -> where it comes from, sorted; nothing is imported for it."""
        return {name: self.origin(name) for name in sorted(self.points)}

    def origin(self, name: str) -> str:
        """Where the class of this name comes from; ``configuration`` when nothing has it."""
        return ", ".join(map(origin_of, self._chosen(name))) or CONFIGURATION

    def load_class(self, name: str) -> type[AnyPlugin]:
        """Import the class of this name.

        Raises:
            PluginFault: there is none, or there are two, or it is not what it should be.
        """
        chosen = self._chosen(name)
        if not chosen:
            reason = f"{self.base.__name__} {name!r} is not installed{nearest(name, self.points)}"
            raise PluginFault(PluginStatus.UNKNOWN, f"{reason}; correct the name or install its package.")
        if len(chosen) > 1:
            raise PluginFault(PluginStatus.CLASH, f"{self.origin(name)} all bring {name!r}: uninstall all but one.")
        point, origin = chosen[0], origin_of(chosen[0])
        if origin != BUILT_IN:
            for say in _listeners:  # before it, since it may end the process
                say(f"loading {point.value} from {origin}")
        try:
            found: type[AnyPlugin] = point.load()
        except (Exception, SystemExit) as error:
            whose = "install device-agent again" if origin == BUILT_IN else "correct or uninstall that package"
            reason = f"{point.value} from {origin} could not be imported: {describe(error)}; {whose}."
            raise PluginFault(PluginStatus.NOT_LOADED, reason) from error
        if not (isinstance(found, type) and issubclass(found, self.base)):
            reason = f"{point.value} from {origin} is no class of agent.{self.base.__name__}."
            raise PluginFault(PluginStatus.NOT_LOADED, reason)
        own_name = getattr(found, self.key, None)
        if own_name != name:
            reason = f"{point.value} from {origin} has the {self.key} {own_name!r}, and its entry point {name!r}"
            raise PluginFault(PluginStatus.NOT_LOADED, f"{reason}: give both one name.")
        return found

    def _chosen(self, name: str) -> list[EntryPoint]:
        points = self.points.get(name, [])
        return points[:1] if name in self.built_ins else points


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and value > 0


def create_plugin(
    make: Callable[[Any], AnyPlugin], model: type[BaseModel] | None, settings: Mapping[str, Any], owner: str
) -> AnyPlugin:
    """A plug-in that has its settings and has checked itself.

    Args:
        make: its class, or what takes its settings instead.
        model: of its settings; None: it takes none.
        settings: the raw section of the configuration.
        owner: who it is, such as ``handler 'run'``; begins the sentence.

    Raises:
        PluginFault: it cannot be used, in whatever way.
    """
    if model is None and settings:
        names = ", ".join(sorted(map(str, settings)))
        raise PluginFault(PluginStatus.INVALID_SETTINGS, f"{owner} takes no settings: remove {names}.")
    try:
        parsed = None if model is None else model.model_validate(dict(settings))
    except ValidationError as error:
        reason = f"{owner}: settings: {faults_of(error, model or BaseModel)}."
        raise PluginFault(PluginStatus.INVALID_SETTINGS, reason) from error
    try:
        plugin = make(parsed)
    except (Exception, SystemExit) as error:
        raise PluginFault(PluginStatus.NOT_LOADED, f"{owner} could not be created: {describe(error)}.") from error
    try:
        plugin.check()
    except (Exception, SystemExit) as error:
        raise PluginFault(PluginStatus.CHECK_FAILED, f"{owner} cannot work here: {describe(error)}.") from error
    return plugin


@cache
def installed_entry_points(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, ordered by name; read from the disk once per process.

    ``entry_points()`` itself reads the metadata of every installed distribution again at each call.
    """
    return tuple(sorted(entry_points(group=group), key=lambda point: (point.name, point.value)))


def origin_of(point: EntryPoint) -> str:
    """``built-in``, or the distribution that an entry point comes from: name and version, or its value without one."""
    if point.dist is None:
        return BUILT_IN if point.group == BUILT_IN else point.value
    return f"{point.dist.name} {point.dist.version}"


def packages_of(listing: Iterable[PluginInfo]) -> dict[str, str]:
    """The packages that the ready plug-ins of a listing come from -> their versions."""
    origins = (info.origin.rpartition(" ") for info in listing if info.status is PluginStatus.READY)
    return {name: version for name, _, version in origins if name}


def states_of(listing: Iterable[PluginInfo], parts: Mapping[str, Part]) -> dict[str, str]:
    """``handler:NAME`` and ``sensor:NAME`` -> ``ready``, or why it does not work; of two of one name the ready one.

    Args:
        listing: of the registries.
        parts: of the running agent. A sensor works once it has been read.
    """
    states = {}
    for each in sorted(listing, key=lambda info: info.status is PluginStatus.READY):
        key, state = f"{each.kind}:{each.name}", f"{each.status}: {each.reason}".removesuffix(": ")
        if each.kind == "sensor" and each.status is PluginStatus.READY:
            part = parts.get(key)
            if part is None or part.state != "ok":
                state = NOT_READ_YET if part is None else f"{part.state}: {part.detail}"
        states[key] = state
    return states


_listeners: Final[list[Callable[[str], object]]] = []


def tell_loading(say: Callable[[str], object]) -> None:
    """Have each installed plug-in named before it is imported: one that ends the process is the last one named.

    Args:
        say: takes the line.
    """
    _listeners[:] = [say]


def faults_of(error: ValidationError, model: type[BaseModel]) -> str:
    """The faults of a validation as one sentence that names each member, the first three in full."""
    faults = sentences(error, model, shows_values=False)
    more = len(faults) - _FAULTS_SHOWN
    return "; ".join([*faults[:_FAULTS_SHOWN], *([f"and {more} more"] if more > 0 else [])])


def describe(error: BaseException) -> str:
    """An exception as text on one line, with its type when it says nothing else."""
    text = " ".join(str(error).split())
    if not text:
        return type(error).__name__
    return text if isinstance(error, OSError) else f"{type(error).__name__}: {text}"
