"""``dataclass`` for frozen values, with one set of methods for all of them.

The library's own compiles six methods for each class, some 6 KB, which for the hundred values of an idle agent came to
0.7 MB. What is compiled here is ``__init__`` alone, so making a value takes as long as ever; comparing and hashing take
a little longer. Everything else is the library's: ``field``, ``fields``, ``replace`` and ``asdict`` work as ever.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any, Final, TypeVar

__all__ = ["dataclass"]

if TYPE_CHECKING:
    # Checkers know what the library's does.
    from dataclasses import dataclass
else:
    ClassT = TypeVar("ClassT", bound=type)

    def dataclass(*, frozen: bool = False, slots: bool = False, eq: bool = True) -> Callable[[ClassT], ClassT]:
        """As :func:`dataclasses.dataclass`; a frozen class with slots shares its methods with all others."""

        def make(cls: ClassT) -> ClassT:
            if not (frozen and slots and eq):
                return dataclasses.dataclass(frozen=frozen, slots=slots, eq=eq)(cls)
            made = dataclasses.dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)(cls)
            shared = {name: method for name, method in _UNLESS_DEFINED.items() if name not in cls.__dict__}
            for name, method in {"__init__": _compile_init(made), **_FROZEN, **shared}.items():
                setattr(made, name, method)
            return made

        return make


def _compile_init(cls: Any) -> Any:
    """``__init__(self, a, b=..., c=_)``: defaults are the fields' own, ``_`` asks the field's factory."""
    defaults: dict[str, Any] = {}
    factories: dict[str, Any] = {}
    setters: dict[str, Any] = {}
    arguments, lines = [], []
    for each in dataclasses.fields(cls):
        if not each.init or each.kw_only:
            raise TypeError(f"{cls.__qualname__}.{each.name}: init=False and kw_only need dataclasses.dataclass")
        value = each.name
        if each.default is not MISSING:
            defaults[each.name] = each.default
        elif each.default_factory is not MISSING:
            defaults[each.name] = MISSING
            factories[each.name] = each.default_factory
            value = f"_new[{value!r}]() if {value} is _ else {value}"
        arguments.append(f"{each.name}=_" if each.name in defaults else each.name)
        # The slot's own setter: quicker than object.__setattr__, which looks the name up each time.
        setters[f"_set_{each.name}"] = getattr(cls, each.name).__set__
        lines.append(f" _set_{each.name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    made: dict[str, Any] = {}
    names = {"_": MISSING, "_new": factories, **setters}
    exec(f"def __init__(self, {', '.join(arguments)}):\n" + "\n".join(lines), names, made)  # noqa: S102 - field names
    init = made["__init__"]
    init.__defaults__ = tuple(defaults.values())
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _setattr(_self: object, name: str, _value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(_self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    names = [each.name for each in dataclasses.fields(self) if each.compare]
    return all(getattr(self, name) == getattr(other, name) for name in names)


def _hash(self: Any) -> int:
    return hash(tuple(getattr(self, each.name) for each in dataclasses.fields(self) if each.compare))


def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


_FROZEN: Final = {"__setattr__": _setattr, "__delattr__": _delattr}
_UNLESS_DEFINED: Final = {"__eq__": _eq, "__hash__": _hash, "__repr__": _repr}
