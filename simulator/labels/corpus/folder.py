"""The corpus as a folder: one file per payload, one picture, and ``corpus.json`` that says what each must bring."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simulator.labels.corpus.case import QR, Setting
from simulator.labels.corpus.collection import CLASSES, Entry
from simulator.labels.corpus.drawing import draw_case
from simulator.labels.corpus.guide import README, SCHEMA
from simulator.labels.errors import LabelError, LabelsExist
from simulator.whole_files import UNFINISHED, cannot_write, write_whole

FORMAT: Final = "device-agent/label-corpus/1"
CORPUS_JSON: Final = "corpus.json"
TEXTS: Final = "texts"
PICTURES: Final = "pictures"
_RELATIVES: Final = {"MicroQRCode", "RMQRCode"}
"""Some readers of QR codes count these as such."""
_OURS: Final = {UNFINISHED, CORPUS_JSON, "corpus.schema.json", "README.md", TEXTS, PICTURES}


@dataclass(frozen=True, slots=True)
class WrittenCorpus:
    """A corpus on the disk.

    Attributes:
        folder: where it is.
        pictures: how many payloads were drawn.
    """

    folder: Path
    pictures: int


def write_corpus(
    entries: Sequence[Entry],
    setting: Setting,
    out: Path,
    *,
    label_key: str,
    replace: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> WrittenCorpus:
    """Write all of it; equal arguments give byte-identical files.

    Args:
        entries: what :func:`~simulator.labels.corpus.collection.collect` made.
        setting: what they were made for.
        out: the folder; made when missing.
        label_key: of the signed product, as it may be written down.
        replace: overwrite another corpus in the folder.
        on_progress: called after each entry.

    Raises:
        LabelsExist: the folder holds something else.
        LabelError: it cannot be written.
    """
    try:
        _clear(out, replace=replace)
        for name in (TEXTS, PICTURES):
            (out / name).mkdir(parents=True, exist_ok=True)
        rows = []
        for number, entry in enumerate(entries, start=1):
            text, png = f"{TEXTS}/{entry.id}.txt", draw_case(entry.case)
            picture = f"{PICTURES}/{entry.id}.png" if png else None
            (out / text).write_bytes(entry.case.payload)
            if png and picture:
                (out / picture).write_bytes(png)
            rows.append(_row(entry, text, picture))
            if on_progress:
                on_progress(number, len(entries))
        (out / "README.md").write_text(README, encoding="utf-8")
        (out / "corpus.schema.json").write_text(_json(SCHEMA), encoding="utf-8")
        # Last: with it, the corpus is whole.
        write_whole(out / CORPUS_JSON, _json(_document(setting, label_key, rows)))
        (out / UNFINISHED).unlink()
    except OSError as problem:
        raise LabelError(cannot_write(out, problem, "another --out")) from None
    return WrittenCorpus(out, sum(row["picture"] is not None for row in rows))


def _clear(out: Path, *, replace: bool) -> None:
    """Make the folder, or take away what an earlier corpus left; refuse what is none."""
    out.mkdir(parents=True, exist_ok=True)
    names = {path.name for path in out.iterdir()}
    if names and not (names <= _OURS and names & {CORPUS_JSON, UNFINISHED}):
        raise LabelsExist(f"{out} holds something else than a label corpus: choose another --out")
    if names and UNFINISHED not in names and not replace:
        raise LabelsExist(f"{out} holds a label corpus: choose another --out, or pass --replace to overwrite it")
    (out / UNFINISHED).touch()
    (out / CORPUS_JSON).unlink(missing_ok=True)
    for folder, ending in ((TEXTS, ".txt"), (PICTURES, ".png")):
        for path in (out / folder).glob(f"*{ending}"):
            path.unlink()


def _document(setting: Setting, label_key: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "seed": setting.seed,
        "made_for": {
            "product_id": setting.product_id,
            "signed_product_id": setting.signed_product_id,
            "label_key": label_key,
            "link_host": setting.host,
        },
        "request": {"method": "POST", "path": "/onboarding/scan-qr", "content_type": "application/json"},
        "classes": {each.name: {"about": each.about, "valid": each.valid} for each in CLASSES},
        "entries": rows,
    }


def _row(entry: Entry, text: str, picture: str | None) -> dict[str, Any]:
    case, expected = entry.case, entry.case.expected
    return {
        "id": entry.id,
        "class": entry.of.name,
        "valid": entry.of.valid,
        "what": case.wrong,
        "payload_base64": base64.b64encode(case.payload).decode(),
        "qr_data": case.text if case.body is None else None,
        "body_base64": base64.b64encode(case.body).decode() if case.body is not None else None,
        "symbology": case.symbology,
        "text": text,
        "picture": picture,
        "decoders_find": None if case.symbology in _RELATIVES else picture is not None and case.symbology == QR,
        "expected": None if expected is None else {"status": expected.status, "error": expected.error or None},
        "shows": None if case.shows is None else {"product_id": case.shows[0], "device_identifier": case.shows[1]},
    }


def _json(value: object) -> str:
    # ASCII: an editor or a diff must not change, hide or turn round what is in here.
    return json.dumps(value, indent=1, ensure_ascii=True) + "\n"
