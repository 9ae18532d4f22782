"""All classes, and the corpus that they make together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from simulator.labels.corpus.case import Case, CaseClass, Cases, Setting
from simulator.labels.corpus.classes import (
    characters,
    injections,
    json_texts,
    links,
    neighbours,
    other_texts,
    records,
    signatures,
)


def _refused(**named: Cases) -> tuple[CaseClass, ...]:
    return tuple(_class(name, cases, valid=False) for name, cases in named.items())


def _class(name: str, cases: Cases, *, valid: bool) -> CaseClass:
    return CaseClass(name, (cases.__doc__ or "").split("\n")[0], cases, valid)


CLASSES: Final = (
    *_refused(
        empty=other_texts.empty,
        other_codes=other_texts.strangers,
        schema=json_texts.schema,
        top_level=json_texts.top_level,
        version=json_texts.version,
        syntax=json_texts.syntax,
        duplicate_keys=json_texts.duplicate_keys,
        nested_json=json_texts.nested,
        numbers=json_texts.numbers,
        length=json_texts.length,
        oversized=other_texts.oversized,
        truncated=other_texts.truncated,
        duplicate_label=other_texts.repeated,
        foreign_product=other_texts.foreign,
        look_alike_host=links.look_alike_hosts,
        link_form=links.link_forms,
        compact_record=records.records,
        base45=records.base45_texts,
        letter_case=records.case_changes,
        encoding=characters.encodings,
        byte_order_mark=characters.byte_order_marks,
        control_characters=characters.controls,
        white_space=characters.white_space,
        look_alike_letters=characters.look_alike_letters,
        injection_sql=injections.sql,
        injection_template=injections.templates,
        injection_path=injections.paths,
        injection_script=injections.scripts,
        injection_shell=injections.shell,
        injection_header=injections.headers,
        signature=signatures.signatures,
        replay=signatures.replays,
        wrong_symbology=other_texts.symbologies,
    ),
    _class("good_label", neighbours.good_labels, valid=True),
    _class("good_identifier", neighbours.good_identifiers, valid=True),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A case with its place in the corpus.

    Attributes:
        id: its class and number, such as ``schema-003``.
        of: its class.
        case: the payload.
    """

    id: str
    of: CaseClass
    case: Case


def collect(setting: Setting) -> tuple[Entry, ...]:
    """The whole corpus, the same for the same setting."""
    return tuple(
        Entry(f"{each.name}-{number:03d}", each, case)
        for each in CLASSES
        for number, case in enumerate(each.cases(setting), start=1)
    )
