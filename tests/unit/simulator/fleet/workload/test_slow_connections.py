"""What slow connections begin with."""

from __future__ import annotations

import pytest
from mqtt5 import ConnectPacket, read

from simulator.fleet.engine.http.origin import read_origin
from simulator.fleet.engine.mqtt.engine import BrokerAddress
from simulator.fleet.workload.slow_connections import over_http, over_mqtt


def test_over_mqtt_it_is_a_connect_whose_client_id_has_no_end_for_hours():
    target = over_mqtt(BrokerAddress("broker", 1883))
    assert (target.host, target.port, target.tls) == ("broker", 1883, None)
    with pytest.raises(IndexError):
        read(memoryview(target.beginning + b"a" * 59_999))
    packet, size = read(memoryview(target.beginning + b"a" * 60_000))
    assert isinstance(packet, ConnectPacket)
    assert (len(packet.client_id), size) == (60_000, len(target.beginning) + 60_000)


def test_over_http_it_is_a_request_whose_head_has_no_end():
    beginning = over_http(read_origin("http://service:80")).beginning
    assert beginning.startswith(b"POST /sensor-data HTTP/1.1\r\nhost: service")
    assert b"\r\n\r\n" not in beginning
