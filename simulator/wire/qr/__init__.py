"""The text in a QR label: three profiles, one strict parser.

======== ============================================================================ ==================================
profile  text                                                                         for
======== ============================================================================ ==================================
json     ``{"v":1,"product_id":...,"device_identifier":...,"sig"?:...}``              reading by eye
link     ``https://HOST/onboard?p=...&d=...&s=...``                                   phones without the app
compact  ``DL1:`` and a packed record in base45, all in QR's alphanumeric characters  small labels
======== ============================================================================ ==================================

The signature is over :func:`signed_bytes`: the label's own text without it. So nothing else may yield the same label:
a ``link``, a ``compact`` and every signed label is taken only in exactly the form in which :func:`encode_label` writes
it. An unsigned ``json`` may have other white space, another order, and members that are not known here.

Keys and signatures need the extra ``device`` and are in :mod:`simulator.wire.qr.keys`.
"""

from simulator.wire.qr.label import VERSION, LabelText
from simulator.wire.qr.text import PREFIX, encode_label, parse_label, signed_bytes

__all__ = ["PREFIX", "VERSION", "LabelText", "encode_label", "parse_label", "signed_bytes"]
