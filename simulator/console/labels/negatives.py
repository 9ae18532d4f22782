"""Labels that must not pass: payloads that a server has to refuse, and good labels damaged by known amounts."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from simulator.console.labels.making import LabelsResult, as_members, batch_of, zip_folder
from simulator.labels.corpus.case import Setting
from simulator.labels.corpus.collection import Entry, collect
from simulator.labels.corpus.drawing import draw_case
from simulator.labels.corpus.folder import write_corpus
from simulator.labels.corpus.run import made_up_signer
from simulator.labels.damage.documents import sample_file
from simulator.labels.damage.kinds import KINDS
from simulator.labels.damage.making import damage_labels
from simulator.labels.damage.measuring import DamageFinding
from simulator.labels.errors import LabelError
from simulator.labels.symbol.decoders import Decoder
from simulator.wire.qr.keys import LabelSigner, signer_of_label_key

_SEVERITIES: Final = (0.5, 1.0)
_NOBODY: Final = ("0193b2f4-0000-7000-8000-000000000001", "f193b2f4-0000-7000-8000-000000000002")
"""Two ids in the place of a product that is not there: what differs is about it."""
_LINK_HOST: Final = "onboard.example.com"


def make_negatives(order: Mapping[str, Any], label_key: str | None, panel: tuple[Decoder, ...]) -> LabelsResult:
    """Make what was ordered.

    Args:
        order: the members of a :class:`~simulator.console.labels.orders.LabelOrder`.
        label_key: the product's.
        panel: the decoders that are asked about damaged labels.

    Raises:
        LabelError: it cannot be made; the message names members of the order.
    """
    try:
        if order["negatives"] == "payloads":
            return _payloads(order, label_key)
        return _damaged(order, label_key, panel)
    except LabelError as problem:
        raise LabelError(as_members(str(problem))) from None


def _payloads(order: Mapping[str, Any], label_key: str | None) -> LabelsResult:
    signer = None if label_key is None else signer_of_label_key(label_key)
    setting, entries = _entries_for(order["product_id"], order["link_host"] or _LINK_HOST, label_key, signer)
    if order["output"] == "zip":
        with tempfile.TemporaryDirectory(prefix="labels-") as place:
            out = Path(place) / "corpus"
            write_corpus(entries, setting, out, label_key=setting.signer.key.shown)
            return LabelsResult({}, zip_folder(out), "application/zip", "labels-to-refuse.zip")
    refused = [entry for entry in entries if not entry.of.valid]
    firsts = {entry.of.name: entry for entry in reversed(refused)}.values()  # one of each class
    drawn = [(entry, draw_case(entry.case)) for entry in reversed(firsts)]
    shown = [_show_entry(entry, png) for entry, png in drawn if png is not None]
    return LabelsResult({"count": len(refused), "classes": len({entry.of.name for entry in refused}), "entries": shown})


def _show_entry(entry: Entry, png: bytes) -> dict[str, Any]:
    case, expected = entry.case, entry.case.expected
    return {
        "id": entry.id,
        "class": entry.of.name,
        "what": case.wrong,
        "text": case.text,
        "expected": None if expected is None else {"status": expected.status, "error": expected.error or None},
        "png_base64": base64.b64encode(png).decode(),
    }


def _entries_for(
    product_id: str, host: str, label_key: str | None, signer: LabelSigner | None
) -> tuple[Setting, tuple[Entry, ...]]:
    """The payloads that say something about this product, or about none.

    A corpus is made for two products, one of which signs its labels. Here is one product. It is made twice, each time
    with another id in the place of the product that is not there; what differs is about that one, and left out.
    """

    def setting(nobody: str, other: str) -> Setting:
        if signer is not None:
            return Setting(nobody, product_id, signer, host)
        if label_key is not None:  # it signs, by a key that is not here
            return Setting(nobody, other, made_up_signer(0), host)
        return Setting(product_id, nobody, made_up_signer(0), host)

    first, second = setting(*_NOBODY), setting(*reversed(_NOBODY))
    kept = [one for one, other in zip(collect(first), collect(second), strict=True) if one.case == other.case]
    return first, tuple(kept)


def _damaged(order: Mapping[str, Any], label_key: str | None, panel: tuple[Decoder, ...]) -> LabelsResult:
    is_preview = order["output"] == "preview"
    with batch_of(order, label_key, panel, ["png"], 1 if is_preview else None) as good:
        out = good.folder.with_name("damaged")
        batch = damage_labels([good.folder], out=out, severities=_SEVERITIES, flips=False, decoders=panel)
        if not is_preview:
            return LabelsResult({}, zip_folder(out), "application/zip", "labels-damaged.zip")
        shown = [
            _show_damage(out, finding, number, batch.run.decoders)
            for finding in batch.findings
            for number in _numbers(finding)
        ]
    total = len(order["identifiers"] or ()) or order["count"]
    return LabelsResult(
        {"count": total * len(shown), "labels": total, "decoders": list(batch.run.decoders), "entries": shown}
    )


def _numbers(finding: DamageFinding) -> range:
    return range(1, len(finding.samples) + 1)


def _show_damage(out: Path, finding: DamageFinding, number: int, decoders: tuple[str, ...]) -> dict[str, Any]:
    kind, sample = KINDS[finding.kind], finding.samples[number - 1]
    return {
        "kind": finding.kind,
        "what": kind.what,
        "severity": sample.severity,
        "measure": f"{sample.measure:.3g} {kind.unit}",
        "verdicts": {name: verdict.value for name, verdict in zip(decoders, sample.verdicts, strict=True)},
        "png_base64": base64.b64encode((out / sample_file(finding, number)).read_bytes()).decode(),
    }
