"""What handlers and sensors share as plug-ins: discovery, status, and sentences about faults.

A plug-in goes through load, settings, creation and self-check. Each step that fails has a status of its own and one
full sentence; nothing here ever ends the agent.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Any, Final

from pydantic import BaseModel, RootModel, ValidationError

_FAULTS_SHOWN: Final = 3


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
    """Importing it failed."""
    NOT_A_PLUGIN = "not_a_plugin"
    """It was imported and is not what the group promises."""
    INVALID_SETTINGS = "invalid_settings"
    NOT_CREATED = "not_created"
    """Its constructor failed."""
    SAFE_MODE = "left_alone_in_safe_mode"
    """The agent is in safe mode, and it is nothing that mends."""
    CHECK_FAILED = "check_failed"
    """Its own check says that it cannot work here."""


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """One line of ``device-agent handlers`` or ``device-agent sensors``.

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
    """One plug-in stopped at one step; the registries turn it into a :class:`PluginInfo`."""

    def __init__(self, status: PluginStatus, reason: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(reason)


@cache
def installed_entry_points(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, ordered by name; read from the disk once per process.

    ``entry_points()`` itself reads the metadata of every installed distribution again at each call.
    """
    return tuple(sorted(entry_points(group=group), key=lambda point: (point.name, point.value)))


def origin_of(point: EntryPoint) -> str:
    """Which distribution an entry point comes from: name and version, or its value when that is not known."""
    if point.dist is None:
        return point.value
    return f"{point.dist.name} {point.dist.version}"


def packages_of(listing: Iterable[PluginInfo]) -> dict[str, str]:
    """The packages that the ready plug-ins of a listing come from -> their versions."""
    origins = (info.origin.rpartition(" ") for info in listing if info.status is PluginStatus.READY)
    return {name: version for name, _, version in origins if name}


def states_of(listing: Iterable[PluginInfo]) -> dict[str, str]:
    """``handler:NAME`` and ``sensor:NAME`` -> ``ready``, or the status and its reason; of two of one name the ready."""
    by_state = sorted(listing, key=lambda info: info.status is PluginStatus.READY)
    return {f"{each.kind}:{each.name}": f"{each.status}: {each.reason}".removesuffix(": ") for each in by_state}


def stale_packages(loaded: Mapping[str, str]) -> list[str]:
    """A phrase for each package whose version is no longer the one that was loaded.

    Args:
        loaded: name of a package -> its version when its plug-ins were imported.
    """
    found = []
    for name, then in sorted(loaded.items()):
        try:
            now = version(name)
        except PackageNotFoundError:
            found.append(f"{name} {then} runs, and is not installed any more")
            continue
        if now != then:
            found.append(f"{name} {then} runs, {now} is installed")
    return found


_listeners: Final[list[Callable[[str], object]]] = []


def tell_loading(say: Callable[[str], object]) -> None:
    """Have each installed plug-in named before it is imported: one that ends the process is the last one named.

    Args:
        say: takes the line.
    """
    _listeners[:] = [say]


def load_entry_point(point: EntryPoint) -> Any:
    """Import what an entry point names; said before, since it may end the process.

    Raises:
        PluginFault: the import failed, in whatever way.
    """
    for say in _listeners:
        say(f"loading {point.value} from {origin_of(point)}")
    try:
        return point.load()
    except (Exception, SystemExit) as error:
        reason = (
            f"{point.value} from {origin_of(point)} could not be imported: {describe(error)}; "
            f"mend or uninstall that package."
        )
        raise PluginFault(PluginStatus.NOT_LOADED, reason) from error


def parse_settings(model: type[BaseModel] | None, settings: Mapping[str, Any], owner: str) -> BaseModel | None:
    """A plug-in's settings as its own model; None when it has none.

    Args:
        model: the plug-in's ``Settings``.
        settings: the raw section of the configuration.
        owner: who it is for, such as ``handler 'run'``; begins the sentence.

    Raises:
        PluginFault: the settings are not what the model asks for.
    """
    if model is None:
        if settings:
            names = ", ".join(sorted(map(str, settings)))
            raise PluginFault(PluginStatus.INVALID_SETTINGS, f"{owner} takes no settings: remove {names}.")
        return None
    try:
        # A validator for this once; the model would keep its own for good.
        return RootModel[model].model_validate(dict(settings)).root  # type: ignore[valid-type]  # it is a class at run time
    except ValidationError as error:
        raise PluginFault(PluginStatus.INVALID_SETTINGS, f"{owner}: settings: {faults_of(error, model)}.") from error


def faults_of(error: ValidationError, model: type[BaseModel]) -> str:
    """The faults of a validation as one sentence that names each member, the first three in full."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    parts = [_fault_text(dict(fault), model) for fault in faults[:_FAULTS_SHOWN]]
    if len(faults) > _FAULTS_SHOWN:
        parts.append(f"and {len(faults) - _FAULTS_SHOWN} more")
    return "; ".join(parts)


def _fault_text(fault: Mapping[str, Any], model: type[BaseModel]) -> str:
    location: tuple[Any, ...] = fault["loc"]
    member = ".".join(str(step)[:80] for step in location)
    if fault["type"] == "extra_forbidden":
        near = nearest(str(location[-1]), list(model.model_fields)) if len(location) == 1 else ""
        return f"{member!r} is not known here{near}"
    if fault["type"] == "missing":
        return f"{member!r} is missing"
    message = str(fault["msg"]).removeprefix("Value error, ")
    if not member:
        return message
    return f"{member!r}: {message[:1].lower()}{message[1:]}"


def nearest(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` when a known name is close to this one; else empty."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def describe(error: BaseException) -> str:
    """An exception as text on one line, with its type when it says nothing else."""
    text = " ".join(str(error).split())
    if not text:
        return type(error).__name__
    return text if isinstance(error, OSError) else f"{type(error).__name__}: {text}"
