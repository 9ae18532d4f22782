"""The section ``mqtt``: the broker in front of the gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from agent.config.section import Host, Seconds, Section, is_this_machine

# IANA: mqtt, secure-mqtt.
_PORT: Final = 1883
_TLS_PORT: Final = 8883


def _version_as_text(value: object) -> object:
    return "5" if value == 5 and not isinstance(value, bool) else value


MqttVersion = Annotated[Literal["5", "3.1.1"], BeforeValidator(_version_as_text)]


class MqttConfig(Section):
    """The broker. Client id and user name are the device id, the password is its token.

    Attributes:
        port: see :attr:`port_in_use` for its default.
        ca_file: PEM file with the authorities to trust instead of the system's; read at each connection.
        cert_file, key_file: PEM files of this device's own certificate, for a broker that asks for one.
        version: of MQTT; 3.1.1 for a broker that does not speak 5.
        reconnect_max_s: the longest wait between two attempts to connect.
        receipt_timeout_s: how long to wait for a receipt before the same is sent again.
    """

    host: Host
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    tls: bool = True
    allow_plain_mqtt: bool = False
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    version: MqttVersion = "5"
    reconnect_max_s: Annotated[float, Field(ge=1, le=3600)] = 120.0
    receipt_timeout_s: Seconds = 10.0

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
        return self.port or (_TLS_PORT if self.tls else _PORT)
