"""The contact sheet: one file, nothing loaded, nothing believed."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

from simulator.labels.printing.contact import ContactLabel, contact_sheet
from simulator.labels.symbol.decoders import panel
from simulator.labels.symbol.encoding import Candidate, encode
from simulator.labels.symbol.pictures import load_picture

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


def _label(name: str = "SIM-1", verdict: str = "read") -> ContactLabel:
    matrix = encode(name, Candidate(0, "M", None))
    return ContactLabel((name, "a product"), matrix, 21.0, (("zxing", verdict), ("zbar", "read")), 3, 2, "A")


def _page(*labels: ContactLabel, title: str = "a batch") -> str:
    return b"".join(contact_sheet(iter(labels), title=title, count=len(labels), facts=(("Product", title),))).decode()


def test_every_picture_in_the_page_is_the_code_itself():
    page = _page(_label("SIM-1"), _label("SIM-2"))
    pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    read = [panel()[0].read(load_picture(base64.b64decode(picture))) for picture in pictures]
    assert read == [(b"SIM-1",), (b"SIM-2",)]


def test_identifiers_verdicts_and_further_tries_are_shown():
    page = _page(_label(verdict="missed"))
    assert "<b>SIM-1</b>" in page
    assert '<span class="bad">zxing: missed</span>' in page
    assert "candidate 3 (2 missed)" in page
    assert "print estimated A" in page


def test_nothing_in_a_label_becomes_markup():
    page = _page(_label(EVIL), title=EVIL)
    assert "<script" not in page
    assert page.count("<img ") == 1
    assert "onerror=alert(1)&gt;" in page


def test_the_page_loads_nothing_from_anywhere():
    page = _page(_label())
    assert "default-src 'none'" in page
    assert not re.search(r"https?://|<link|<script|@import", page)


def test_labels_are_taken_one_at_a_time():
    taken: list[int] = []

    def labels() -> Iterator[ContactLabel]:
        for index in range(500):
            taken.append(index)
            yield _label("X")

    pieces = contact_sheet(labels(), title="t", count=500, facts=())
    next(pieces)
    assert len(taken) < 400


def test_a_lone_surrogate_does_not_stop_the_page():
    assert "SIM-?" in _page(ContactLabel(("SIM-\ud800",), _label().matrix, 20, (), 1, 0, "A"))
