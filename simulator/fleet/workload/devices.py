"""Builds a worker's devices: over HTTP or MQTT with the agent's core, or plain requests without them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from agent.core.timekeeping import PollIntervals
from agent.errors import ConfigurationError
from agent.wire.network import trust_store
from agent.wire.secret import Secret
from simulator.fleet.device.driver import HttpDriver, MqttDriver
from simulator.fleet.device.links import Links
from simulator.fleet.device.model import DeviceModel, Fleet, Member
from simulator.fleet.engine.addresses import RequestHead, TargetAddress, own_addresses, read_origin
from simulator.fleet.engine.http import Http1Engine
from simulator.fleet.engine.mqtt import MqttSessions
from simulator.fleet.plan import key_of
from simulator.fleet.scenario.model import (
    DeviceModelSettings,
    ModelSettings,
    PollSettings,
    ReadingModelSettings,
    RequestsScenario,
    Scenario,
    TelemetrySettings,
)
from simulator.fleet.signals import build_signals
from simulator.fleet.target.target import read_keys
from simulator.fleet.workload.base import Job
from simulator.fleet.workload.requests import RequestDriver

Devices = HttpDriver | MqttDriver | RequestDriver
"""The drivers of a worker's devices; all have the same methods."""


def make_devices(job: Job, fleet: Fleet, members: Sequence[Member]) -> Devices:
    """Build the driver that the scenario asks for.

    Args:
        job: of the worker.
        fleet: what they have in common.
        members: the devices.

    Raises:
        ConfigurationError: an address, a key or a certificate cannot be used.
    """
    scenario, first = job.scenario, fleet.first_index
    listed = scenario.target.source_addresses
    sources = own_addresses(listed)  # those that this machine has
    if listed and not sources:
        raise ConfigurationError([f"target.source_addresses: none of {', '.join(listed)} is there any more"], "target")
    links = Links(fleet, has_faults=bool(scenario.faults))
    tokens = [] if job.tokens is None else read_tokens(job.tokens, job.device_ids)
    if scenario.target.transport == "mqtt":
        broker = broker_of(job.broker_url, job.ca_file, sources)
        sessions = MqttSessions(broker, fleet.timers, connect_timeout_s=fleet.timeout_s)
        token_of = (lambda device: tokens[device - first]) if tokens else (lambda _device: None)
        return MqttDriver(sessions, fleet, members, tokens=token_of, links=links)
    origin, per_device = read_origin(job.device_url, job.ca_file), not scenario.target.is_pooled
    engine = Http1Engine(origin, fleet.timers, per_device=per_device, pool=job.connections, sources=sources)
    if tokens:
        credentials = [{"authorization": f"Bearer {token.reveal()}"} for token in tokens]
        heads = [RequestHead(origin, each) for each in credentials]
    else:  # each device has one key pair, the same however many workers there are
        pairs = [RequestHead(origin, pair.headers()) for pair in read_keys(job.keys)]
        heads = [pairs[key_of(device, scenario.fleet.devices, len(pairs))] for device in job.devices]
    if isinstance(scenario, RequestsScenario):
        return RequestDriver(engine, fleet, members, heads, scenario.arrivals, links)
    return HttpDriver(engine, fleet, members, heads, links)


def broker_of(broker_url: str | None, ca_file: Path | None, sources: tuple[str, ...]) -> TargetAddress:
    """Where sessions connect to, and from which addresses; with one TLS context for all where the URL is ``mqtts``.

    Raises:
        ConfigurationError: ``ca_file`` cannot be read.
    """
    url = urlsplit(broker_url or "")
    if url.scheme != "mqtts":
        return TargetAddress(url.hostname or "", url.port or 1883, sources)
    try:
        return TargetAddress(url.hostname or "", url.port or 8883, sources, trust_store(ca_file))
    except OSError as error:
        fault = f"ca_file {ca_file}: it has no certificate of an authority ({error}); name a PEM file with one"
        raise ConfigurationError([fault], "target") from None


def read_tokens(path: Path, device_ids: Iterable[str]) -> list[Secret]:
    """The tokens of these devices, from the file that the coordinator wrote for the whole fleet.

    Raises:
        ConfigurationError: the file cannot be read, or lacks one.
    """
    try:
        tokens = json.loads(path.read_text(encoding="utf-8"))
        return [Secret(tokens[device_id]) for device_id in device_ids]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError([f"the devices' tokens cannot be read: {error!r}"], str(path)) from None


def build_models(scenario: Scenario, folder: Path) -> tuple[DeviceModel, ...]:
    """The models of a scenario, in its order.

    Args:
        scenario: with the models.
        folder: where relative paths start.

    Raises:
        ConfigurationError: a file cannot be used.
    """
    return tuple(_build(each, scenario, folder) for each in scenario.fleet.models)


def _build(settings: ModelSettings, scenario: Scenario, folder: Path) -> DeviceModel:
    try:
        signals = build_signals(settings.signals, folder=folder)
    except ConfigurationError as error:
        raise ConfigurationError([f"model {settings.name}: {fault}" for fault in error.faults], "models") from None
    telemetry = settings.telemetry if isinstance(settings, ReadingModelSettings) else TelemetrySettings()
    poll = settings.poll if isinstance(settings, DeviceModelSettings) else PollSettings()
    # Where the service holds polls, the core's own pace is used only when the service answers at once.
    is_held = scenario.target.transport != "http_poll"
    return DeviceModel(
        signals=signals,
        interval_s=telemetry.every_s,
        in_step=telemetry.phase == "in_step",
        polling=PollIntervals() if is_held else PollIntervals(poll.every_s, poll.every_s, poll.every_s),
        wait_s=poll.wait_s,
        batch=telemetry.batch,
    )
