"""The checks that ask others: real sockets, real certificates, a real service and a real broker."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time

import pytest

from agent.app.lock import state_lock
from agent.app.status import StatusFile, write_status
from agent.doctor import CheckStatus, Finding
from agent.health import Part
from tests.support.certificates import Authority, Pair
from tests.support.mosquitto import write_passwords
from tests.support.ports import free_port
from tests.support.service_running import running
from tests.unit.agent.doctor.verdicts import is_bad, is_ok


def test_a_name_without_an_address_and_a_port_where_nobody_listens(device):
    device.values["service"] = {"base_url": f"http://127.0.0.1:{free_port()}"}
    # A zone that no machine has: the guard of the tests lets only addresses through.
    device.values["mqtt"] = {"host": "::1%nosuchzone", "tls": True}
    device.values["auth"] = {"mode": "bearer", "token_file": device.key("token", "dat_1")}
    service, broker = device.findings("connection")
    is_bad(service, "failed", "nobody listens", "service.base_url", unreachable=True)
    is_bad(broker, "failed", "no address", "mqtt.host", unreachable=True)
    is_bad(device.findings("service")[-1], "failed", "cannot connect", "", unreachable=True)


class TestCertificates:
    @pytest.fixture
    def judged(self, device, tmp_path):
        """The finding about a server with this certificate."""
        authority = Authority(tmp_path / "authority")
        device.wall_s = time.time()

        def judged(pair: Pair) -> Finding:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pair.certificate, pair.key)
            with socket.create_server(("127.0.0.1", 0)) as listener:

                def serve() -> None:
                    peer, _ = listener.accept()
                    with peer, contextlib.suppress(OSError):
                        context.wrap_socket(peer, server_side=True).close()

                thread = threading.Thread(target=serve)
                thread.start()
                base_url = f"https://127.0.0.1:{listener.getsockname()[1]}"
                device.values["service"] = {"base_url": base_url, "ca_file": authority.certificate}
                finding = device.look("connection")
                thread.join()
            return finding

        judged.authority = authority
        return judged

    def test_one_that_is_good(self, judged):
        is_ok(judged(judged.authority.issue("good")), "is good until")

    def test_one_that_is_over_or_not_valid_yet_by_this_devices_clock(self, judged):
        for pair in (judged.authority.issue("expired", expired=True), judged.authority.issue("early", not_yet=True)):
            finding = judged(pair)
            is_bad(finding, "failed", "set this machine's clock", "")
            assert "this device's clock: 20" in finding.seen

    def test_one_that_is_signed_by_a_stranger_or_made_out_to_another_name(self, judged, tmp_path):
        stranger = Authority(tmp_path / "other").issue("stranger")
        is_bad(judged(stranger), "failed", "nobody whom this machine trusts", "")
        other = judged.authority.issue("other", host="somewhere.example")
        is_bad(judged(other), "failed", "shows into service.base_url", "")

    def test_none_on_a_way_that_leaves_this_machine(self, device, monkeypatch):
        near, far = socket.socketpair()
        monkeypatch.setattr("agent.doctor.checks.connect", lambda *_: near)
        device.values["service"] = {"base_url": "http://192.0.2.1", "allow_plain_http": True}
        is_bad(device.look("connection"), "warning", "anybody on the way", "https://")
        far.close()


class TestService:
    @pytest.fixture
    def bench(self, device):
        with running() as bench:
            device.values["service"] = {"base_url": bench.service.base_url}
            device.keys["api_key"].write_text(bench.service.api_key)
            device.keys["secret_key"].write_text(bench.service.secret_key.reveal())
            device.values["device"] = {"device_id": bench.device()}
            yield bench

    def test_asking_marks_no_command_as_delivered(self, device, bench):
        device_id = device.values["device"]["device_id"]
        command_id = bench.send(device_id)
        is_ok(device.findings("service")[-1], "knows it")
        assert bench.command(device_id, command_id)["status"] == "queued"

    def test_a_device_and_keys_that_it_does_not_take(self, device, bench):
        device.values["device"] = {"device_id": "nobody"}
        is_bad(device.findings("service")[-1], "failed", "check service.base_url and device.device_id", "")
        device.keys["secret_key"].write_text("msk_wrong")
        is_bad(device.findings("service")[-1], "failed", "put the right key or token into the file that auth names", "")

    def test_a_clock_that_is_months_away_from_the_services_and_one_that_agrees(self, device, bench):
        finding = device.findings("service")[0]
        is_bad(finding, "failed", "one of the two clocks is wrong", "timedatectl")
        assert "ahead of" in finding.seen
        device.wall_s = bench.clock.now_ms() / 1000
        is_ok(device.findings("service")[0], "agrees")


class TestBroker:
    @pytest.fixture
    def broker(self, device, start_mosquitto, tmp_path):
        broker = start_mosquitto(*write_passwords(tmp_path / "users", {"d1": "dat_right"}))
        del device.values["service"]
        device.values["mqtt"] = {"host": "127.0.0.1", "port": broker.port, "tls": False, "version": "5"}
        device.values["auth"] = {"mode": "bearer", "token_file": device.key("token", "dat_right")}
        return broker

    def test_one_that_takes_this_device_refuses_its_token_or_speaks_no_tls(self, device, broker):
        is_ok(device.look("broker"), "takes this device's token")
        device.key("token", "dat_wrong")
        is_bad(device.look("broker"), "failed", "auth.token_file", "")
        device.values["mqtt"]["tls"] = True
        is_bad(device.look("connection"), "failed", "TLS handshake", "may not speak TLS", unreachable=True)
        assert device.look("service").verdict is CheckStatus.SKIPPED

    def test_the_connection_of_a_running_agent_is_left_alone(self, device, broker):
        with state_lock(device.state_dir):
            is_ok(device.look("broker"), "left alone")
            parts = {"broker": Part("unreachable", 0.0, "is the broker running?")}
            write_status(device.state_dir / "status.json", StatusFile("running", 1, "0", "d1", 0.0, 1.0, "b", parts))
            is_bad(device.look("broker"), "failed", "is the broker running?", "")
        assert "as d1" not in broker.log()
