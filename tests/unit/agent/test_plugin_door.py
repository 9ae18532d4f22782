"""What docs/handlers.md shows of the public door is what plug-ins find there."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import agent

PAGE = Path(__file__).parents[3] / "docs/handlers.md"


def shown_classes() -> list[ast.ClassDef]:
    section = PAGE.read_text("utf-8").partition("### All that a plug-in imports")[2]
    block = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert block is not None
    return [node for node in ast.parse(block[1]).body if isinstance(node, ast.ClassDef)]


def test_each_name_of_the_door_is_on_the_page_and_can_be_imported():
    text = PAGE.read_text("utf-8")
    for name in agent.__all__:
        assert getattr(agent, name) is not None
        assert re.search(rf"\b{name}\b", text), name


def test_each_attribute_and_method_is_there_with_its_default_and_parameters():
    for shown in shown_classes():
        real = getattr(agent, shown.name)
        for member in shown.body:
            if isinstance(member, ast.FunctionDef):
                parameters = [each.arg for each in member.args.args if each.arg not in {"self", "cls"}]
                found = [name for name in inspect.signature(getattr(real, member.name)).parameters if name != "self"]
                assert found == parameters, (shown.name, member.name)
            elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                name = member.target.id
                assert any(name in inspect.get_annotations(each) for each in real.__mro__), f"{shown.name}.{name}"
                if isinstance(member.value, ast.Constant):
                    assert getattr(real, name) == member.value.value, (shown.name, name)
