"""Other symbols than QR: a scanner for labels must not read them, and what they say is mostly no label, either."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.labels.corpus.case import NO_LABEL, Case, Setting, case


def symbologies(setting: Setting) -> Iterator[Case]:
    """What else stands on a box: the same device in another symbol, a good label in a symbol that is no QR code."""
    for symbology, wrong, text in (
        ("Code128", "the identifier as a bar code", "SIM-000001"),
        ("Code39", "the identifier as a bar code", "SIM-000001"),
        ("Code93", "the identifier as a bar code", "SIM-000001"),
        ("Codabar", "a number as a bar code", "A000001B"),
        ("ITF", "a number as a bar code", "00000012"),
        ("EAN13", "an article number", "5901234123457"),
        ("EAN8", "a short article number", "96385074"),
        ("UPCA", "an article number", "036000291452"),
        ("DataBar", "an article number", "0950110153000"),
        ("DataMatrix", "the identifier", "SIM-000001"),
        ("Aztec", "a ticket", "M1DOE/JANE            EABC123 VIEJFKOS 0087"),
        ("PDF417", "the identifier", "SIM-000001"),
        ("MicroQRCode", "the identifier, in the small relative of QR", "SIM-000001"),
        ("RMQRCode", "the identifier, in the flat relative of QR", "SIM-000001"),
    ):
        yield case(f"{symbology}: {wrong}", text, NO_LABEL, symbology=symbology)
    for symbology in ("DataMatrix", "Aztec", "PDF417"):
        for profile in ("json", "link", "compact"):
            wrong = f"{symbology}: a good label of profile {profile}, which a scanner for QR never hands over"
            yield case(wrong, setting.plain(profile), None, symbology=symbology)
    compact = setting.plain("compact")
    yield case("Code128: a good label of profile compact", compact, None, symbology="Code128")
