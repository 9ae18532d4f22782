"""What a label says: identifiers out of a template, and the text of a code out of an identifier."""

from simulator.labels.payload.identifiers import DEFAULT_TEMPLATE, IdentifierTemplate
from simulator.labels.payload.profiles import PROFILES, Payload, label_text, open_payload

__all__ = [
    "DEFAULT_TEMPLATE",
    "PROFILES",
    "IdentifierTemplate",
    "Payload",
    "label_text",
    "open_payload",
]
