"""The section ``mqtt``: the broker in front of the gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from agent.config.section import Host, Seconds, Section, is_this_machine, key

# MQTT's own ports and those of WebSockets, by whether TLS is on (IANA: mqtt, secure-mqtt, http, https).
_PORTS: Final = {(False, False): 1883, (False, True): 8883, (True, False): 80, (True, True): 443}


def _version_as_text(value: object) -> object:
    return "5" if value == 5 and not isinstance(value, bool) else value


MqttVersion = Annotated[Literal["auto", "5", "3.1.1"], BeforeValidator(_version_as_text)]


class MqttConfig(Section):
    """The broker. Client id and user name are the device id, the password is its token."""

    host: Host = key("Name or address of the broker.", example="gateway.example.com")
    port: Annotated[int, Field(ge=1, le=65535)] | None = key(
        "Its port. Default: 8883, without TLS 1883; with websocket_path 443 and 80.", default=None, example=8883
    )
    tls: bool = key(
        "Encrypt the connection and check the broker's certificate.",
        why="Without TLS anybody on the way reads the device's token. Off only for a broker on this machine.",
        default=True,
    )
    allow_plain_mqtt: bool = key(
        "Allow tls: false to a broker that is not this machine.",
        why="For a closed test network.",
        default=False,
    )
    ca_file: Path | None = key(
        "PEM file with the certificate authorities to trust instead of the system's.",
        why="For a broker behind a company's own authority. Read again at each connection.",
        default=None,
        example="/etc/device-agent/ca.pem",
    )
    cert_file: Path | None = key(
        "PEM file with this device's own certificate, and the chain up to its authority.",
        why="For a broker that asks for client certificates.",
        default=None,
        example="/etc/device-agent/device.pem",
    )
    key_file: Path | None = key(
        "PEM file with the private key of cert_file, mode 600, without a passphrase.",
        default=None,
        example="/etc/device-agent/device.key",
    )
    websocket_path: Annotated[str, Field(pattern=r"^/[\x21-\x7e]*$", max_length=255)] | None = key(
        "Speak MQTT over a WebSocket on this path.",
        why="For networks that let nothing through but the ports of the web.",
        default=None,
        example="/mqtt",
    )
    version: MqttVersion = key(
        "Version of MQTT. 'auto' begins with 5 and falls back to 3.1.1 when the broker does not take it.",
        default="auto",
    )
    keepalive_s: Annotated[int, Field(ge=5, le=3600)] = key(
        "At least this often something goes over the connection.",
        unit="s",
        why="A dead connection is noticed after at most twice this. Shorten it below the cut-off of your network; each "
        "ping costs a mobile link some bytes.",
        default=60,
    )
    connect_timeout_s: Annotated[float, Field(ge=1, le=300)] = key(
        "How long an attempt to connect may take.", unit="s", why="Raise it on a slow mobile link.", default=15.0
    )
    reconnect_max_s: Annotated[float, Field(ge=1, le=3600)] = key(
        "The longest wait between two attempts to connect, or to hand something over. Waits are drawn at random and "
        "double up to this.",
        unit="s",
        why="A fleet must not come back in the same second.",
        default=120.0,
    )
    session_expiry_s: Annotated[int, Field(ge=0, le=7 * 86400)] = key(
        "How long the broker keeps commands for this device while it is away (version 5; with 3.1.1 the broker "
        "decides).",
        unit="s",
        why="Nothing hangs on it: whoever comes back is sent again what is open. A queue for long absences costs the "
        "broker memory.",
        default=3600,
    )
    delivered_when: Literal["receipt", "puback"] = key(
        "When a reading or result counts as handed over: 'receipt' when the gateway says that it has stored it, "
        "'puback' as soon as the broker has it.",
        why="'puback' is for a broker without our gateway behind it: what the broker loses is lost.",
        default="receipt",
    )
    receipt_timeout_s: Seconds = key(
        "How long to wait for a receipt before the same is sent again.",
        unit="s",
        why="The gateway stores a repeat once, so a short time only costs traffic; a long one lets readings wait "
        "when a broker lost some.",
        default=10.0,
    )
    list_every_s: Annotated[float, Field(ge=10, le=86400)] = key(
        "With a section service beside this one: how often to ask over HTTP which commands are open.",
        unit="s",
        why="A push is a hint and the list is the truth. While the broker is away commands.poll counts instead.",
        default=900.0,
    )
    max_message_bytes: Annotated[int, Field(ge=4096, le=16 * 1024 * 1024)] = key(
        "The largest message to take from the broker; a larger one is dropped.",
        unit="bytes",
        why="Bounds the memory that a broken or hostile server can take.",
        default=2 * 1024 * 1024,
    )

    @model_validator(mode="after")
    def _is_encrypted(self) -> Self:
        if not self.tls and not self.allow_plain_mqtt and not is_this_machine(self.host):
            raise ValueError(
                "mqtt.tls is off, so the device's token would travel in the clear: leave it on, or set "
                "mqtt.allow_plain_mqtt: true on a closed test network"
            )
        if not self.tls and (self.ca_file or self.cert_file or self.key_file):
            raise ValueError("mqtt.tls is off, and a certificate file is named: set tls: true or remove the file")
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("mqtt.cert_file and mqtt.key_file go together: name both or none")
        return self

    @property
    def port_in_use(self) -> int:
        """The port, as given or by default."""
        return self.port or _PORTS[self.websocket_path is not None, self.tls]
