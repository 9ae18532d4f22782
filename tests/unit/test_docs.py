"""The documents lead somewhere, and ``--help`` tells of every command and option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from agent.cli.program import device_agent
from gateway.cli import device_gateway
from simulator.cli import program

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
PROGRAMS = {"device-agent": device_agent, "device-gateway": device_gateway, "fleet-simulator": program}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def texts() -> list[tuple[Path, str]]:
    assert len(DOCUMENTS) > 10
    return [(path, path.read_text(encoding="utf-8")) for path in DOCUMENTS]


def commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """A command and all below it, with the words that call them."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(f"{path} {name}", inner)


def test_every_command_and_option_has_a_help_text():
    silent = []
    for name, group in PROGRAMS.items():
        for path, command in commands(name, group):
            if not (command.help or command.short_help):
                silent.append(path)
            silent += [
                f"{path} {parameter.opts[0]}"
                for parameter in command.params
                if isinstance(parameter, click.Option) and not parameter.hidden and not parameter.help
            ]
    assert not silent


def test_a_link_inside_the_project_leads_to_a_file():
    broken = [
        f"{name_of(path)}: {target}"
        for path, text in texts()
        for target in re.findall(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
        if "://" not in target and not target.startswith("mailto:") and not (path.parent / target).exists()
    ]
    assert not broken


def anchors_of(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a document."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    plain = [re.sub(r"[^\w\- ]", "", found.lower()) for found in re.findall(r"^#+ (.+)$", prose, re.MULTILINE)]
    return {found.replace(" ", "-") for found in plain}


def test_a_link_to_a_heading_finds_it():
    dead = [
        f"{name_of(path)}: {target}#{anchor}"
        for path, text in texts()
        for target, anchor in re.findall(r"\[[^\]]*\]\(((?!https?:)[^)#\s]*)#([^)\s]+)\)", text)
        if (page := path.parent / target if target else path).suffix == ".md"
        and anchor not in anchors_of(page.read_text(encoding="utf-8"))
    ]
    assert not dead


def test_a_path_of_the_project_that_a_document_names_exists():
    """Decisions also name what was there once."""
    named = re.compile(r"`((?:agent|benchmarks|configs|docs|examples|gateway|simulator|systemd|tests|tools)/[\w./-]+)`")
    found = [(path, target) for path, text in texts() for target in named.findall(text)]
    missing = [(name_of(path), target) for path, target in found if not (ROOT / target).exists()]
    assert not [(page, target) for page, target in missing if "/decisions/" not in page]


def test_every_page_is_in_the_table_of_contents():
    contents = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = [p for p in (ROOT / "docs").rglob("*.md") if p != ROOT / "docs" / "README.md"]
    assert not [name_of(p) for p in pages if f"({p.relative_to(ROOT / 'docs')})" not in contents]
