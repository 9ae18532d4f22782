"""Formulas: a safe arithmetic expression over named numbers.

Parsed by :mod:`ast` and turned into closures by a white list: no attribute, index, text, call by keyword or name that
was not given is ever reached, and nothing is evaluated by Python itself.
"""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Numbers = Callable[[str], float]
"""Looks a name up."""

Term = Callable[[Numbers], float]

LENGTH_MAX: Final = 500
DEPTH_MAX: Final = 50
BUILT_IN: Final = frozenset({"t", "index"})
"""Names that are no readings: seconds since the epoch, and the device's index."""


class FormulaError(ValueError):
    """An expression that is no formula; the text shows the column."""


def _power(base: float, exponent: float) -> float:
    return math.pow(base, exponent)  # a root of a negative number is a ValueError here, not a complex number


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _sign_round(value: float, digits: float = 0.0) -> float:
    return round(value, int(digits))


_BINARY: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: _power,
}
_COMPARE: Final[Mapping[type[ast.cmpop], Callable[[float, float], bool]]] = {
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
}
_FUNCTIONS: Final[Mapping[str, tuple[Callable[..., float], int, int]]] = {
    "abs": (abs, 1, 1),
    "min": (min, 2, 10),
    "max": (max, 2, 10),
    "round": (_sign_round, 1, 2),
    "floor": (math.floor, 1, 1),
    "ceil": (math.ceil, 1, 1),
    "sqrt": (math.sqrt, 1, 1),
    "exp": (math.exp, 1, 1),
    "log": (math.log, 1, 1),
    "sin": (math.sin, 1, 1),
    "cos": (math.cos, 1, 1),
    "tanh": (math.tanh, 1, 1),
    "clip": (_clip, 3, 3),
}
_CONSTANTS: Final[Mapping[str, float]] = {"pi": math.pi}


@dataclass(frozen=True, slots=True)
class Formula:
    """A parsed expression that can be evaluated.

    Attributes:
        text: as it was given.
        names: of the readings that it uses; without ``t`` and ``index``.
        term: its value, given the numbers.
    """

    text: str
    names: frozenset[str]
    term: Term

    def evaluate(self, numbers: Numbers) -> float:
        """The value; NaN where there is none, such as a division by zero."""
        try:
            return float(self.term(numbers))
        except (ArithmeticError, ValueError):
            return math.nan

    def __reduce__(self) -> tuple[Callable[[str], Formula], tuple[str]]:
        # Closures do not go to another process; the text does.
        return parse_formula, (self.text,)


def check_formula(text: str) -> None:
    """Raise what :func:`parse_formula` raises."""
    parse_formula(text)


def parse_formula(text: str) -> Formula:
    """Parse an expression.

    Raises:
        FormulaError: with what is wrong, the column, and what is allowed instead.
    """
    if len(text) > LENGTH_MAX:
        raise FormulaError(f"the formula has {len(text)} characters; at most {LENGTH_MAX}")
    # Folding newlines keeps one line, and with it the column that a person counts.
    line = " ".join(text.split("\n"))
    body = line.lstrip()
    lead = len(line) - len(body)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as for `1if a else b`, which is clear enough
            tree = ast.parse(body, mode="eval")
    except SyntaxError as error:
        raise FormulaError(_at(error.msg, (error.offset or 1) + lead, text)) from None
    except (ValueError, RecursionError, MemoryError):
        raise FormulaError(f"{text!r} cannot be read as a formula") from None
    reader = _Reader(text, lead)
    term = reader.term(tree.body, 0)
    return Formula(text, frozenset(reader.names), term)


class _Reader:
    """Turns syntax into closures."""

    def __init__(self, text: str, lead: int) -> None:
        self._text = text
        self._lead = lead
        self.names: set[str] = set()

    def term(self, node: ast.expr, depth: int) -> Term:
        """The closure of one node and what is below it."""
        if depth > DEPTH_MAX:
            raise self._fault(node, f"nested deeper than {DEPTH_MAX}")
        read = _READ.get(type(node))
        if read is None:
            raise self._fault(node, "only numbers, names, arithmetic and the listed functions can stand here")
        return read(self, node, depth)

    def number(self, node: ast.Constant, _: int) -> Term:
        """A number."""
        value = node.value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._fault(node, f"{value!r} is no number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self._fault(node, "the number is too large")
        return lambda _: number

    def name(self, node: ast.Name, _: int) -> Term:
        """A reading, ``t``, ``index`` or a constant."""
        name = node.id
        if name in _CONSTANTS:
            constant = _CONSTANTS[name]
            return lambda _: constant
        if name in _FUNCTIONS:
            raise self._fault(node, f"{name} is a function: write {name}(...)")
        if name not in BUILT_IN:
            self.names.add(name)
        return lambda numbers: numbers(name)

    def binary(self, node: ast.BinOp, depth: int) -> Term:
        """``a + b``."""
        apply = _BINARY.get(type(node.op))
        if apply is None:
            raise self._fault(node, "the operators are + - * / // % **")
        left, right = self.term(node.left, depth + 1), self.term(node.right, depth + 1)
        return lambda numbers: apply(left(numbers), right(numbers))

    def unary(self, node: ast.UnaryOp, depth: int) -> Term:
        """``-a``."""
        term = self.term(node.operand, depth + 1)
        match node.op:
            case ast.USub():
                return lambda numbers: -term(numbers)
            case ast.UAdd():
                return term
            case ast.Not():
                return lambda numbers: float(not term(numbers))
            case _:
                raise self._fault(node, "~ is no arithmetic")

    def compare(self, node: ast.Compare, depth: int) -> Term:
        """``a < b <= c``: 1 or 0."""
        terms = [self.term(part, depth + 1) for part in (node.left, *node.comparators)]
        tests: list[Callable[[float, float], bool]] = []
        for operator in node.ops:
            test = _COMPARE.get(type(operator))
            if test is None:
                raise self._fault(node, "the comparisons are < <= > >= == !=")
            tests.append(test)

        def compare(numbers: Numbers) -> float:
            values = [term(numbers) for term in terms]
            return float(all(test(values[n], values[n + 1]) for n, test in enumerate(tests)))

        return compare

    def logic(self, node: ast.BoolOp, depth: int) -> Term:
        """``a and b``: 1 or 0."""
        terms = [self.term(part, depth + 1) for part in node.values]
        every = isinstance(node.op, ast.And)
        join = all if every else any
        return lambda numbers: float(join(bool(term(numbers)) for term in terms))

    def call(self, node: ast.Call, depth: int) -> Term:
        """``max(a, b)``."""
        if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS:
            raise self._fault(node, f"the functions are {', '.join(_FUNCTIONS)}")
        name = node.func.id
        apply, fewest, most = _FUNCTIONS[name]
        if node.keywords or not fewest <= len(node.args) <= most:
            count = str(fewest) if fewest == most else f"{fewest} to {most}"
            raise self._fault(node, f"{name} takes {count} number{'s' if most > 1 else ''}")
        terms = [self.term(part, depth + 1) for part in node.args]
        return lambda numbers: apply(*[term(numbers) for term in terms])

    def choice(self, node: ast.IfExp, depth: int) -> Term:
        """``a if test else b``."""
        test, yes, no = (self.term(part, depth + 1) for part in (node.test, node.body, node.orelse))
        return lambda numbers: yes(numbers) if test(numbers) else no(numbers)

    def _fault(self, node: ast.expr, what: str) -> FormulaError:
        # ast counts bytes of UTF-8, a person counts characters.
        before = self._text.lstrip().encode()[: node.col_offset].decode(errors="replace")
        return FormulaError(_at(what, len(before) + 1 + self._lead, self._text))


_READ: Final[Mapping[type[ast.expr], Callable[[_Reader, Any, int], Term]]] = {
    ast.Constant: _Reader.number,
    ast.Name: _Reader.name,
    ast.BinOp: _Reader.binary,
    ast.UnaryOp: _Reader.unary,
    ast.Compare: _Reader.compare,
    ast.BoolOp: _Reader.logic,
    ast.IfExp: _Reader.choice,
    ast.Call: _Reader.call,
}
"""The white list."""


def _at(what: str, column: int, text: str) -> str:
    return f"column {column}: {what}: {text!r}"
