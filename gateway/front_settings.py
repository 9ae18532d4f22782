"""From the sections of the configuration to what the fronts take."""

from __future__ import annotations

from agent.adapters.mqtt_session import Tls
from gateway.config import HttpConfig, MqttFrontConfig
from gateway.http.app import Limits
from gateway.http.connection_limits import ConnectionLimits
from gateway.http.front import HttpSettings
from gateway.mqtt.front import MqttSettings


def http_settings(http: HttpConfig) -> HttpSettings:
    """Where the HTTP front listens."""
    limits = Limits(http.requests_per_minute)
    connections = ConnectionLimits(body_s=http.body_timeout_s)
    return HttpSettings(http.host, http.port, http.certificate, http.private_key, limits, connections)


def mqtt_settings(mqtt: MqttFrontConfig, client_id: str) -> MqttSettings:
    """Where the broker is, and who the gateway is there."""
    return MqttSettings(
        host=mqtt.host,
        port=mqtt.port,
        client_id=client_id,
        user_name=mqtt.user_name,
        password_file=mqtt.password_file,
        tls=Tls(mqtt.ca_file, mqtt.cert_file, mqtt.key_file) if mqtt.tls else None,
        websocket_path=mqtt.websocket_path,
        version=mqtt.version,
        group=mqtt.group,
        keepalive_s=mqtt.keepalive_s,
        session_expiry_s=mqtt.session_expiry_s,
    )
