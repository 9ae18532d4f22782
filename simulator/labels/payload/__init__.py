"""What a label says: identifiers out of a template, and the text of a code out of an identifier."""

from simulator.labels.payload.identifiers import DEFAULT_TEMPLATE, IdentifierTemplate
from simulator.labels.payload.profiles import PROFILES, LabelProfile, Payload, label_text, open_payload, read_text

__all__ = [
    "DEFAULT_TEMPLATE",
    "PROFILES",
    "IdentifierTemplate",
    "LabelProfile",
    "Payload",
    "label_text",
    "open_payload",
    "read_text",
]
