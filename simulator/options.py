"""Options of a command out of a settings model: each setting is declared once, with its bounds and its help."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, get_args, get_origin

import click
from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from agent.wire.secret import Secret


@dataclass(frozen=True, slots=True)
class Option:
    """How a setting is given on the command line: ``Annotated[int, Option("--port", "0 takes any free one.")]``.

    Attributes:
        name: such as ``--port``; ``--no-...`` of a setting that is on by default switches it off.
        help: one or two sentences.
        metavar: what stands for the value in the help.
        is_file: of a path: it names a file, not a folder.
        multiple: it may be given again and again; the setting is a tuple of texts.
    """

    name: str
    help: str
    metavar: str | None = None
    is_file: bool = False
    multiple: bool = False

    @property
    def switches_off(self) -> bool:
        """Whether giving it sets False."""
        return self.name.startswith("--no-")


def make_options(
    model: type[BaseModel],
    *,
    defaults: Mapping[str, Any] | None = None,
    leave_out: Collection[str] = (),
) -> list[click.Option]:
    """An option for each setting that has an :class:`Option`.

    Args:
        model: the settings.
        defaults: where they differ from the model's.
        leave_out: settings that get no option.
    """
    made = []
    for name, field, option in _declared(model):
        if name in leave_out:
            continue
        default = (defaults or {}).get(name, field.default)
        kind = _kind(field)
        settings: dict[str, Any] = {"help": option.help, "show_default": True}
        if kind is bool:
            settings |= {"is_flag": True, "default": default != option.switches_off, "show_default": False}
        elif option.multiple:
            settings |= {"multiple": True, "metavar": option.metavar}
        else:
            settings |= {"type": _click_type(kind, field, option), "default": default, "metavar": option.metavar}
        made.append(click.Option([option.name, name], **settings))
    return made


def take_settings(model: type[BaseModel], given: dict[str, Any]) -> dict[str, Any]:
    """The settings among what a command was called with; they are taken out of ``given``."""
    found = {}
    for name, _, option in _declared(model):
        if name in given:
            value = given.pop(name)
            found[name] = not value if option.switches_off else value
    return found


def _declared(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo, Option]]:
    for name, field in model.model_fields.items():
        for one in field.metadata:
            if isinstance(one, Option):
                yield name, field, one


def _kind(field: FieldInfo) -> Any:
    """The type of a setting, without the None of one that may be missing."""
    kinds = [kind for kind in get_args(field.annotation) if kind is not type(None)]
    return kinds[0] if get_origin(field.annotation) is UnionType else field.annotation


_NUMBERS: Final[dict[type, Any]] = {int: click.IntRange, float: click.FloatRange}


def _click_type(kind: Any, field: FieldInfo, option: Option) -> Any:
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    if kind is Path:
        return click.Path(file_okay=option.is_file, dir_okay=not option.is_file, path_type=Path)
    if kind in _NUMBERS:
        least = next((one.ge for one in field.metadata if isinstance(one, Ge)), None)
        most = next((one.le for one in field.metadata if isinstance(one, Le)), None)
        if least is None and most is None:
            return click.INT if kind is int else click.FLOAT
        return _NUMBERS[kind](least, most)
    if kind not in {str, Secret}:
        raise TypeError(f"{option.name}: an option cannot have the type {kind}")
    return click.STRING
