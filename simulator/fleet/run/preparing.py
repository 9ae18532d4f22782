"""What a run needs before its first request: devices, their tokens, the workers' jobs, and a lock on the devices."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from agent.errors import ConfigurationError
from agent.wire.server import LONG_POLL, RECORDED_AT
from simulator.file_lock import lock_file
from simulator.fleet.audit.ledger import (
    AuditRules,
    LedgerTarget,
    first_number_of,
    ledger_path,
    make_run_database,
)
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.plan import connections_of, deal, models_of
from simulator.fleet.scenario.model import BackfillScenario, OnboardingScenario, Scenario
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.target.client import open_client
from simulator.fleet.target.provisioning import Provisioned, load_product, provision
from simulator.fleet.target.target import Target, find_gateway_offers, find_offers
from simulator.fleet.workload.backfill import BackfillWorkload
from simulator.fleet.workload.base import Job, Workload
from simulator.fleet.workload.fleet import FleetWorkload
from simulator.fleet.workload.storm import StormWorkload
from simulator.gateway.program import issue_tokens
from simulator.keys import write_secret

_BACKFILL_CONNECTIONS: Final = 32
"""Arrays of readings are large: more of them at once only wait for each other."""
_TEXT_BYTES: Final = 200

OnProgress = Callable[[int, int], None]


def check_gateway(scenario: Scenario, target: Target) -> None:
    """Check that devices that go through a gateway can get its tokens, and can talk to its broker.

    Raises:
        ConfigurationError: they cannot.
    """
    settings = scenario.target
    if not settings.uses_gateway:
        return
    if target.gateway_url is None or target.gateway_config is None:
        fix = "give --local, or --up of a 'fleet-simulator up', or --gateway and --gateway-config of your own"
        raise ConfigurationError([f"devices that go through a gateway need its tokens: {fix}"], "target")
    if not target.gateway_config.is_file():
        fix = f"{target.gateway_config} is not there: name the configuration of a gateway on this machine"
        raise ConfigurationError([fix], "--gateway-config")
    if settings.transport == "mqtt" and target.broker_url is None:
        fix = "give --broker mqtt://host:port, or --up of a 'fleet-simulator up' with a broker"
        raise ConfigurationError([f"transport mqtt needs a broker: {fix}"], "target")
    if settings.transport == "mqtt" and (target.broker or "").startswith("amqtt"):
        fix = "the embedded broker speaks MQTT 3.1.1 only, the fleet speaks 5: apt-get install mosquitto, then start "
        raise ConfigurationError([f"transport mqtt: {fix}'fleet-simulator up' again"], "target")


@dataclass(slots=True)
class Preparation:
    """Makes what is missing on the target, and the workers' jobs.

    Attributes:
        file: the scenario.
        target: how to reach it.
        folder: of the run.
        secrets: a folder for what only workers may read; removed after the run.
        workers: processes.
        is_audited: ledgers are kept, and compared with the service at the end.
        run: identifies this run.
        began_ms: epoch milliseconds of its preparation.
        offers: the service's extensions.
        jobs: one for each worker.
    """

    file: ScenarioFile
    target: Target
    folder: Path
    secrets: Path
    workers: int
    is_audited: bool
    run: str = field(default_factory=lambda: uuid4().hex[:12])
    began_ms: int = 0
    offers: frozenset[str] = frozenset()
    jobs: tuple[Job, ...] = ()

    async def prepare(self, on_progress: OnProgress) -> None:
        """Register the devices that are missing, and deal them out to the workers.

        Args:
            on_progress: called with how many devices are there, and how many are wanted.

        Raises:
            ServiceError: the target refused something or cannot be reached.
            ConfigurationError: a file that the scenario names cannot be used.
        """
        file, target, scenario = self.file, self.target, self.file.scenario
        product = load_product(scenario.fleet.product, file.folder)
        fleet = scenario.fleet
        identifiers = [fleet.identifier(device) for device in range(fleet.devices)]
        self.offers = find_offers(target, scenario.target.dialect.dialect())
        if scenario.kind == "backfill" and RECORDED_AT not in self.offers:
            fault = (
                f"kind backfill: the service announces no {RECORDED_AT}, so that a history cannot keep its times; "
                "where it takes them all the same, say so in target.dialect.extensions"
            )
            raise ConfigurationError([fault], "target")
        registered = [] if isinstance(scenario, OnboardingScenario) else identifiers
        async with open_client(target, self.offers, timeout_s=scenario.target.timeout_s) as client:
            provisioned = await provision(
                client, product, registered, on_progress, scenario=scenario.scenario, user_id=fleet.user_id
            )
        self.began_ms = round(time.time() * 1000)
        if isinstance(scenario, OnboardingScenario):
            self.is_audited = False  # its workload does that itself
        self.jobs = tuple(self._jobs(provisioned))

    def _jobs(self, provisioned: Provisioned) -> Iterator[Job]:
        scenario, target = self.file.scenario, self.target
        if self.is_audited:
            self._keep_rules(provisioned)
        workload_class: Callable[[Job, Recorder], Workload] = FleetWorkload
        device_ids, connections = [device.device_id for device in provisioned.devices], scenario.target.pool
        if isinstance(scenario, OnboardingScenario):
            workload_class = StormWorkload
            devices = map(scenario.fleet.identifier, range(scenario.fleet.devices))
            device_ids = [f"{device}-{self.run[:6]}" for device in devices]
        elif isinstance(scenario, BackfillScenario):
            workload_class, connections = BackfillWorkload, min(_BACKFILL_CONNECTIONS, connections)
        peer = self._peer(provisioned)
        if scenario.target.transport == "http_poll":  # although the service could hold the polls
            peer["device_offers"] -= {LONG_POLL}
        models = models_of(scenario)
        for worker, share in enumerate(deal(scenario.fleet.devices, self.workers)):
            ledger = LedgerTarget(
                ledger_path(self.folder, worker),
                worker,
                share.start,
                len(share),
                self.began_ms,
                numbered=scenario.audit.numbers,
                first_number=first_number_of(self.run),
            )
            yield Job(
                workload_class=workload_class,
                scenario=scenario,
                run=self.run,
                began_s=self.began_ms / 1000,
                base_url=target.base_url,
                ca_file=target.ca_file,
                keys=target.key_files,
                product_id=provisioned.product_id,
                offers=self.offers,
                devices=share,
                device_ids=tuple(device_ids[share.start : share.stop]),
                model_numbers=tuple(models[share.start : share.stop]),
                folder=self.file.folder,
                ledger=ledger if self.is_audited else None,
                connections=connections_of(worker, self.workers, connections),
                **peer,
            )

    def _keep_rules(self, provisioned: Provisioned) -> None:
        """Make the run's database, with what an audit goes by."""
        scenario = self.file.scenario
        faults = scenario.faults
        rules = AuditRules(
            began_ms=self.began_ms,
            offers=self.offers,
            first_number=first_number_of(self.run),
            numbered=scenario.kind == "backfill" or scenario.audit.numbers,
            dialect=scenario.target.dialect,
            device_filter=scenario.audit.device_filter,
            dated_when_made=scenario.kind == "devices" and not any(fault.does("clock_ahead_s") for fault in faults),
            refusals_planned=any(fault.spoils_readings for fault in faults),
        )
        make_run_database(self.folder, rules, [(each.device_id, each.name) for each in provisioned.devices])

    def _peer(self, provisioned: Provisioned) -> dict[str, Any]:
        """The members of a job that say what devices talk to.

        Through a gateway each device gets a token of its own first.
        """
        target, settings = self.target, self.file.scenario.target
        if not settings.uses_gateway or target.gateway_url is None or target.gateway_config is None:
            return {"device_url": target.base_url, "device_offers": self.offers}
        device_ids = [device.device_id for device in provisioned.devices]
        tokens = issue_tokens(target.gateway_config, device_ids)
        text = json.dumps({name: token.reveal() for name, token in tokens.items()})
        path = write_secret(self.secrets / "tokens.json", text)
        offers = find_gateway_offers(target, next(iter(tokens.values())))
        url, broker_url = target.gateway_url, target.broker_url
        return {"device_url": url, "device_offers": offers, "tokens": path, "broker_url": broker_url}


# --- one run at a time for the same devices -----------------------------------------------------------------------


@contextlib.contextmanager
def claimed_devices(scenario: Scenario, base_url: str, folder: Path | None = None) -> Iterator[None]:
    """Keep other runs of this machine away from the scenario's devices while the block lasts.

    Two of them would report each other's commands as lost or unknown.

    The kernel drops the lock of a run that is killed; its file stays, and is used again.

    Args:
        scenario: names product, user and devices.
        base_url: of the service that has them.
        folder: for the lock; the machine's one for temporary files by default.

    Raises:
        ConfigurationError: another run has them.
    """
    fleet = scenario.fleet
    if scenario.kind == "onboarding":  # it makes devices of its own
        yield
        return
    parts = "\n".join((base_url, fleet.user_id, fleet.product, fleet.prefix))
    name = f"fleet-simulator-{os.getuid()}-{hashlib.sha256(parts.encode()).hexdigest()[:16]}.lock"
    path = (folder or Path(tempfile.gettempdir())) / name
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        fault = f"{path} cannot be opened ({error.strerror}), which keeps other runs away: make room, or set TMPDIR"
        raise ConfigurationError([fault], "fleet.prefix") from None
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        try:
            lock_file(descriptor)
        except BlockingIOError:
            whose = file.read(_TEXT_BYTES).decode(errors="replace") or "unknown scenario"
            fault = (
                f"another run of this machine uses these devices ({whose}), and each would report the other's commands "
                "and readings as lost or unknown: wait until it has ended, or give this scenario other names with "
                "fleet.prefix"
            )
            raise ConfigurationError([fault], "fleet.prefix") from None
        with contextlib.suppress(OSError):  # a full disk: then the fault above cannot say who has them
            file.truncate()
            file.write(f"scenario {scenario.scenario}, process {os.getpid()}".encode()[:_TEXT_BYTES])
        yield
