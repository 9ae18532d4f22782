"""Everything that has to be there before the first request: permission, room on this machine, devices, and the jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from agent.errors import ConfigurationError
from agent.wire.dialect import Dialect, ResultPlace
from agent.wire.extensions import COMMAND_RESULTS, LIST_PARAMETERS, RECORDED_AT
from simulator.fleet.audit.ledger import SEQUENCE_NAME, LedgerTarget, first_number_of
from simulator.fleet.audit.run_database import AuditedDevice, AuditRules, ledger_path, make_run_database
from simulator.fleet.faults import causes_rejections, skews_clocks
from simulator.fleet.plan import Plan, connections_of, deal, keys_of
from simulator.fleet.products import load_product
from simulator.fleet.run.worker import Job
from simulator.fleet.scenario.identities import read_identifiers
from simulator.fleet.scenario.model import BackfillScenario, OnboardingScenario, Scenario
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.target.client import Keyring, open_client
from simulator.fleet.target.gateway_tokens import issue_gateway_tokens
from simulator.fleet.target.provisioning import Provisioned, ProvisioningRequest, provision
from simulator.fleet.target.target import Target, find_gateway_offers, find_offers
from simulator.fleet.workload.backfill import BackfillJob, history_name, window_of
from simulator.fleet.workload.devices import Address
from simulator.fleet.workload.fleet import FleetJob
from simulator.fleet.workload.storm import StormJob
from simulator.keys import write_secret

_BACKFILL_CONNECTIONS: Final = 32
"""Arrays of readings are large: more of them at once only wait for each other."""
_SECOND_PERSON: Final = "-2"

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class RunContext:
    """What is to be run where.

    Attributes:
        file: the scenario.
        plan: of it.
        target: how to reach it.
        folder: of the run.
        workers: processes.
        secrets: a folder for what workers must read and nobody else; gone after the run.
        is_audited: ledgers are kept, and are read back at the end.
    """

    file: ScenarioFile
    plan: Plan
    target: Target
    folder: Path
    secrets: Path
    workers: int
    is_audited: bool


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that can begin.

    Attributes:
        jobs: one for each worker.
        run: identifies this run.
        began_ms: epoch milliseconds of its preparation.
        offers: the service's extensions.
        is_audited: ledgers are kept, and are read back at the end.
    """

    jobs: tuple[Job, ...]
    run: str
    began_ms: int
    offers: frozenset[str]
    is_audited: bool


def check_gateway(scenario: Scenario, target: Target) -> None:
    """Check that devices that go through a gateway can get its tokens, and can talk to its broker.

    Raises:
        ConfigurationError: they cannot.
    """
    settings = scenario.target
    if not settings.uses_gateway:
        return
    if target.gateway_url is None or target.gateway_folder is None:
        raise ConfigurationError(
            ["devices that go through a gateway need its tokens: give --local, or --up of a 'fleet-simulator up'"],
            "target",
        )
    if settings.transport == "mqtt" and (target.broker or "").startswith("amqtt"):
        fix = "the embedded broker speaks MQTT 3.1.1 only, the fleet speaks 5: apt-get install mosquitto, then start "
        raise ConfigurationError([f"transport mqtt: {fix}'fleet-simulator up' again"], "target")


async def prepare(context: RunContext, on_progress: OnProgress) -> Prepared:
    """Make what is missing on the target, and deal the devices out.

    Args:
        context: what is to be run where.
        on_progress: called with how many devices are there, and how many are wanted.

    Raises:
        ServiceError: the target refused something or cannot be reached.
        ConfigurationError: a file that the scenario names cannot be used.
    """
    file, target, run = context.file, context.target, uuid4().hex[:12]
    scenario = file.scenario
    product = load_product(_product_path(file))
    identifiers = read_identifiers(scenario, file.folder)
    offers = find_offers(target, scenario.target.dialect.dialect())
    if scenario.kind == "backfill":
        _check_backfill(offers)
    wanted = ProvisioningRequest(
        product,
        scenario.scenario,
        scenario.fleet.identities.user_id,
        [] if isinstance(scenario, OnboardingScenario) else identifiers,
    )
    async with open_client(
        target.base_url,
        Keyring(target.keys),
        timeout_s=scenario.target.timeout_s,
        offers=offers,
        ca_file=target.ca_file,
    ) as client:
        provisioned = await provision(client, wanted, on_progress)
    began_ms = round(time.time() * 1000)
    if isinstance(scenario, OnboardingScenario):
        job = _storm_job(scenario, target, provisioned, offers, [f"{name}-{run[:6]}" for name in identifiers])
        return Prepared((job,), run, began_ms, offers, is_audited=False)
    prepared = Prepared((), run, began_ms, offers, context.is_audited)
    if isinstance(scenario, BackfillScenario):
        return replace(prepared, jobs=tuple(_backfill_jobs(scenario, context, prepared, provisioned)))
    return replace(prepared, jobs=tuple(_fleet_jobs(context, prepared, provisioned)))


def _keep_rules(context: RunContext, prepared: Prepared, provisioned: Provisioned, first_number: int) -> None:
    """Make the run's database, with what an audit goes by."""
    scenario = context.file.scenario
    section = scenario.target.dialect
    dialect = section.dialect()
    is_backfill = scenario.kind == "backfill"
    kinds = [fault.kind for fault in scenario.faults]
    rules = AuditRules(
        began_ms=prepared.began_ms,
        sequence_name=SEQUENCE_NAME if is_backfill or scenario.audit.numbers else None,
        offers=tuple(sorted(prepared.offers)),
        first_number=first_number,
        time_name=dialect.recorded_at_reading,
        command_lists=dialect.command_lists,
        command_id=section.command_id,
        time_zone=section.time_zone,
        results_table=dialect.results_table if _results_are_rows(dialect, prepared.offers) else None,
        dated_when_made=scenario.kind == "devices" and not skews_clocks(kinds),
        late_after_s=scenario.audit.late_after_s,
        refusals_planned=causes_rejections(kinds),
    )
    devices = enumerate(provisioned.devices)
    make_run_database(context.folder, rules, (AuditedDevice(n, each.device_id, each.name) for n, each in devices))


def _results_are_rows(dialect: Dialect, offers: frozenset[str]) -> bool:
    if dialect.results is None:
        return COMMAND_RESULTS not in offers
    return dialect.results is ResultPlace.TABLE


def _check_backfill(offers: frozenset[str]) -> None:
    missing = sorted({LIST_PARAMETERS, RECORDED_AT} - offers)
    if missing:
        fault = (
            f"kind backfill: the service announces no {' and no '.join(missing)}, so that a history can neither keep "
            "its times nor be gone on with; where it takes them all the same, say so in target.dialect.extensions"
        )
        raise ConfigurationError([fault], "target")


def _product_path(file: ScenarioFile) -> Path | None:
    name = file.scenario.fleet.product
    return None if name == "climate-node" else file.folder / name


def _storm_job(
    scenario: OnboardingScenario,
    target: Target,
    provisioned: Provisioned,
    offers: frozenset[str],
    identifiers: Sequence[str],
) -> StormJob:
    settings = scenario.onboarding
    user = scenario.fleet.identities.user_id
    return StormJob(
        base_url=target.base_url,
        ca_file=target.ca_file,
        keys=target.key_files,
        product_id=provisioned.product_id,
        scenario=scenario.scenario,
        identifiers=tuple(identifiers),
        users=(user, user + _SECOND_PERSON),
        rate_per_s=settings.rate_per_s,
        rate_factors=tuple(phase.rate_factor for phase in scenario.phases),
        races=settings.races,
        remove=settings.remove,
        seed=scenario.seed,
        connections=scenario.target.pool,
        timeout_s=scenario.target.timeout_s,
        offers=offers,
    )


def _fleet_jobs(context: RunContext, prepared: Prepared, provisioned: Provisioned) -> Iterator[FleetJob]:
    scenario, target = context.file.scenario, context.target
    address, behind = _address(context, provisioned)
    first_number = first_number_of(prepared.run)
    if context.is_audited:
        _keep_rules(context, prepared, provisioned, first_number)
    for worker, share in enumerate(_shares(context, provisioned, prepared, first_number, scenario.target.pool)):
        yield FleetJob(
            **share,
            address=address,
            operator_url=target.base_url,
            operator_ca_file=target.ca_file,
            worker=worker,
            origin_s=prepared.began_ms / 1000,
            device_offers=_offers_used(scenario, prepared.offers if behind is None else behind),
            run=prepared.run,
        )


def _backfill_jobs(
    scenario: BackfillScenario, context: RunContext, prepared: Prepared, provisioned: Provisioned
) -> Iterator[BackfillJob]:
    target = context.target
    from_s, to_s = window_of(scenario, prepared.began_ms / 1000)
    first_number = first_number_of(history_name(scenario, from_s, to_s))
    if context.is_audited:
        _keep_rules(context, prepared, provisioned, first_number)
    connections = min(_BACKFILL_CONNECTIONS, scenario.target.pool)
    for share in _shares(context, provisioned, prepared, first_number, connections):
        yield BackfillJob(**share, base_url=target.base_url, ca_file=target.ca_file, from_s=from_s, to_s=to_s)


def _shares(
    context: RunContext, provisioned: Provisioned, prepared: Prepared, first_number: int, connections: int
) -> Iterator[dict[str, Any]]:
    """Each worker's members of :class:`~simulator.fleet.workload.base.DeviceJob`.

    Args:
        context: what is to be run where.
        provisioned: the devices on the target.
        prepared: the run so far.
        first_number: on the wire sequence numbers count from here.
        connections: of all workers together.
    """
    scenario, keys = context.file.scenario, context.target.key_files
    count = scenario.fleet.devices
    for worker, devices in enumerate(deal(count, context.workers, len(keys))):
        ours = provisioned.devices[devices.start : devices.stop]
        ledger = LedgerTarget(
            ledger_path(context.folder, worker),
            worker,
            devices.start,
            len(devices),
            prepared.began_ms,
            numbered=scenario.audit.numbers,
            first_number=first_number,
        )
        yield {
            "scenario": scenario,
            "keys": keys[keys_of(devices, count, len(keys))],
            "devices": devices,
            "device_ids": tuple(device.device_id for device in ours),
            "names": tuple(device.name for device in ours),
            "product_id": provisioned.product_id,
            "model_numbers": tuple(int(context.plan.models[device]) for device in devices),
            "folder": context.file.folder,
            "offers": prepared.offers,
            "ledger": ledger if context.is_audited else None,
            "connections": connections_of(worker, context.workers, connections),
        }


def _address(context: RunContext, provisioned: Provisioned) -> tuple[Address, frozenset[str] | None]:
    """Where devices talk to, and the extensions there where that is not the service.

    Through a gateway each device gets a token of its own first.
    """
    target, settings = context.target, context.file.scenario.target
    if not settings.uses_gateway or target.gateway_url is None or target.gateway_folder is None:
        return Address(target.base_url, target.key_files, ca_file=target.ca_file), None
    device_ids = [device.device_id for device in provisioned.devices]
    tokens = issue_gateway_tokens(target.gateway_folder, device_ids, target.gateway_url)
    text = json.dumps({name: token.reveal() for name, token in tokens.items()})
    path = write_secret(context.secrets / "tokens.json", text)
    broker = settings.broker
    host = broker.host if broker is not None else target.broker_host
    port = broker.port if broker is not None else target.broker_port
    if target.broker_port is not None:
        host, port = target.broker_host, target.broker_port
    ca_file = context.file.folder / broker.ca_file if broker is not None and broker.ca_file is not None else None
    offers = find_gateway_offers(target.gateway_url, next(iter(tokens.values()))) if tokens else None
    return Address(target.gateway_url, (), path, host, port, ca_file), offers


def _offers_used(scenario: Scenario, offers: frozenset[str]) -> frozenset[str]:
    """Devices that poll periodically do so although the service could hold their polls."""
    return offers - {"long-poll"} if scenario.target.traits.polls == "periodic" else offers
