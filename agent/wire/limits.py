"""The numbers of the protocol (docs/protocol.md): what the service accepts at most."""

from __future__ import annotations

from typing import Final

BODY_BYTES: Final = 262_144
"""A request body."""

MESSAGE_BYTES: Final = 2 * 1024 * 1024
"""An MQTT packet to a device."""

COMMAND_PAYLOAD_BYTES: Final = 65_536
"""``command_payload`` as compact JSON text."""

SIGNED_MEMBER: Final = "signed_command"
"""The member of ``command_payload`` that holds a signed command; the name is taken."""

JSON_DEPTH: Final = 32
"""Objects and arrays inside each other; the outermost counts as 1."""

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
"""Integers on the wire fit into 64 bits with sign."""

IDENTIFIER_CHARACTERS: Final = 512
"""A ``user_id`` or a ``device_identifier``: what every database can keep in an index."""

PAGE_MAX: Final = 1_000
"""Items on one page of a list."""

TTL_MAX_S: Final = 172_800
"""How long a command may wait for its device, seconds."""

BATCH_MAX: Final = 500
"""Readings in one ``POST /sensor-data`` (extension ``batch-sensor-data``)."""

LONG_POLL_MAX_S: Final = 30
"""How long the service holds a device poll (extension ``long-poll``), seconds."""

IDEMPOTENCY_S: Final = 86_400
"""How long the answer to an ``Idempotency-Key`` is replayed, seconds."""

ANSWER_BYTES: Final = 16 * 1024 * 1024
"""What a client takes as one answer, after decoding."""
