"""``fleet-simulator up``: what builds, wires, starts in order and stops in reverse.

The service and, when asked for, virtual devices run in this process until Ctrl-C; the gateway, and the broker where
mosquitto is installed, are processes of their own.
"""

from __future__ import annotations

import functools
import itertools
import queue
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from agent.error_text import bounded
from agent.errors import AgentError, ConfigurationError
from agent.wire.auth import KeyPair
from agent.wire.registration import RegisterDevice
from simulator.config import DEFAULT_PORT, DEVICES_MAX, UpSettings
from simulator.exit_codes import ExitCode, exit_code_of
from simulator.fleet.device.model import DeviceModel
from simulator.fleet.engine.preflight import raise_descriptor_limit
from simulator.fleet.products import load_product
from simulator.fleet.runner import DeviceIdentity, FleetTarget, FleetThread
from simulator.fleet.signals.scripted import make_signals
from simulator.fleet.target.local import LocalService, remove_local, write_local
from simulator.gateway.broker import PORT_OPTION as MQTT_PORT_OPTION
from simulator.gateway.trial import HTTP_HOST, HTTP_PORT_OPTION, IDENTIFIERS, Trial, running_trial
from simulator.greeting import RunningParts, Style, print_startup
from simulator.interrupts import terminations_as_interrupts
from simulator.keys import Keys, keep_keys, make_keys
from simulator.listening import check_port
from simulator.watched import PartEnded
from simulator.wire.client import ServiceClient
from simulator.wire.products import NewProduct

if TYPE_CHECKING:
    from simulator.service.server import RunningService

_USER_ID: Final = "up-user"
_DEFAULTS: Final = UpSettings()
_LOOK_S: Final = 1.0


@dataclass(slots=True)
class _Around:
    """The gateway and the broker, for programs that look for the service: they come after it.

    Attributes:
        found: the folder that they are in, and what stands there; None without them.
    """

    found: tuple[Path, Trial] | None = None

    def add_to(self, standing: LocalService) -> LocalService:
        """What such a program finds, with them."""
        if self.found is None:
            return standing
        folder, trial = self.found
        return replace(
            standing,
            gateway_url=trial.url,
            gateway_folder=folder / "gateway" / "gateway",
            broker_port=trial.broker.port,
            broker=trial.broker.name,
        )


@click.command("up", short_help="Service, gateway and devices on this machine, until Ctrl-C.")
@click.option("--host", default=_DEFAULTS.host, show_default=True, help="Address that the service listens on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="0 takes any free one."
)
@click.option(
    "--data",
    "data_dir",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="FLEET_SIMULATOR_UP_DATA",
    help="Folder that keeps everything; without it all is in a temporary one and gone at the end.",
)
@click.option(
    "--devices", type=click.IntRange(0, DEVICES_MAX), default=0, show_default=True, help="How many virtual devices."
)
@click.option(
    "--product",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML file with the product of the virtual devices, as in configs/products.",
)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.1, 86_400),
    default=_DEFAULTS.interval_s,
    show_default=True,
    envvar="FLEET_SIMULATOR_UP_INTERVAL",
    help="Seconds between two readings of a virtual device.",
)
@click.option(
    "--rate-limit",
    type=click.IntRange(min=0),
    default=_DEFAULTS.rate_limit,
    show_default=True,
    help="Requests of one key in a calendar minute; 0 = no limit.",
)
@click.option("--seed", type=int, default=_DEFAULTS.seed, show_default=True, help="Of what virtual devices measure.")
@click.option(
    "--gateway/--no-gateway",
    default=_DEFAULTS.gateway,
    show_default=True,
    help="Also start a broker and a gateway, with two devices that are ready to be played.",
)
@click.option(
    "--gateway-port",
    type=click.IntRange(0, 65535),
    default=_DEFAULTS.gateway_port,
    show_default=True,
    help="Port of the gateway for devices that speak HTTP; 0 takes any free one.",
)
@click.option(
    "--mqtt-port",
    type=click.IntRange(0, 65535),
    help="Port of the broker; 0 takes any free one.  [default: with --data the one of the last start, else any]",
)
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="NAME|FILE|AXIS=VALUE,...",
    envvar="FLEET_SIMULATOR_UP_PROFILE",
    help="Answer as another server would, once the devices are registered: as for service --profile.",
)
@click.option(
    "--accounts",
    type=click.IntRange(1, 9),
    default=_DEFAULTS.accounts,
    show_default=True,
    help="Accounts with keys of their own; those of the second are in DATA/keys-2. Onboarding cases use two.",
)
@click.option(
    "--console/--no-console",
    default=_DEFAULTS.console,
    show_default=True,
    help="Serve the console, the pages on which everything is seen and steered in a browser.",
)
@click.option(
    "--verbose",
    is_flag=True,
    envvar="FLEET_SIMULATOR_UP_VERBOSE",
    help="Print every address, key and line to paste, one on each line, instead of one screen.",
)
@click.option(
    "--runs",
    "runs_dir",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="FLEET_SIMULATOR_UP_RUNS",
    help="Folder of the fleet runs that the console shows, and that it puts new ones into.  [default: fleet-runs]",
)
@click.option(
    "--scenarios",
    "scenarios_dir",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="FLEET_SIMULATOR_UP_SCENARIOS",
    help="Folder of the scenarios (*.yaml) that may be started from the console; without it none is.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    envvar="FLEET_SIMULATOR_UP_JSON",
    help="Print addresses and keys as one JSON object.",
)
def up_command(
    *,
    host: str,
    port: int,
    data_dir: Path | None,
    devices: int,
    product: Path | None,
    interval_s: float,
    rate_limit: int,
    seed: int,
    gateway: bool,
    gateway_port: int,
    mqtt_port: int | None,
    profiles: tuple[str, ...],
    accounts: int,
    console: bool,
    verbose: bool,
    runs_dir: Path | None,
    scenarios_dir: Path | None,
    as_json: bool,
) -> int:
    """Start service, broker and gateway on this machine, and virtual devices when asked for; Ctrl-C ends everything.

    Prints one screen: what runs, a link to the console, three commands to paste. Everything else is in the console, and
    printed with --verbose: lines to paste for an agent over MQTT and one over HTTP, and for commands to both.

    Exit codes: 0 ended by Ctrl-C, 1 one of them ended by itself and so all did, 2 the settings cannot be used, 5
    service, broker or gateway could not be started.
    """
    given = click.get_current_context().get_parameter_source("gateway_port")
    if not console and (runs_dir or scenarios_dir):
        raise click.UsageError("--runs and --scenarios are the console's, which --no-console leaves out")
    if not gateway and given is ParameterSource.COMMANDLINE:
        raise click.UsageError("--gateway-port is the gateway's, which --no-gateway leaves out")
    settings = UpSettings(
        host,
        port,
        data_dir,
        devices,
        product,
        interval_s,
        rate_limit,
        seed,
        gateway,
        gateway_port,
        profiles,
        accounts,
        mqtt_port,
        console,
        runs_dir,
        scenarios_dir,
    )
    style = Style.JSON if as_json else Style.VERBOSE if verbose else Style.SCREEN
    try:
        with terminations_as_interrupts():
            run_up(settings, lambda standing: print_startup(standing, settings, style))
    except KeyboardInterrupt:
        pass
    except ConfigurationError as error:
        for fault in error.faults:
            click.echo(bounded(f"fleet-simulator up: {fault}"), err=True)
        return int(ExitCode.USAGE)
    except AgentError as error:
        click.echo(bounded(f"fleet-simulator up: {error}"), err=True)
        return int(exit_code_of(error))
    click.echo("ended", err=True)
    return int(ExitCode.GOOD)


def run_up(
    settings: UpSettings, on_ready: Callable[[RunningParts], None], wait: Callable[[], object] | None = None
) -> None:
    """Start everything in order, wait, and stop it in reverse.

    Args:
        settings: what to start.
        on_ready: called once everything stands.
        wait: returns when it is enough; by default never, so that only an interrupt ends it, or one of the parts.

    Raises:
        ConfigurationError: the settings cannot be used.
        AgentError: the devices could not be registered.
        PartEnded: an error has ended a part of service or devices.
        ChildFailed: broker or gateway has ended.
    """
    from simulator.console.app import make_console
    from simulator.console.runs.runs import RunSettings
    from simulator.service.config import ServiceConfig  # the server's libraries take half a second: not for --help
    from simulator.service.profiles.model import COMPLETE
    from simulator.service.profiles.text import read_all
    from simulator.service.server import RunningService

    profile = read_all(settings.profiles)
    if settings.product and not settings.devices:
        raise ConfigurationError(["--product is the product of the virtual devices: give --devices too"], "up")
    _check_ports(settings)
    raise_descriptor_limit()  # also of broker and gateway, its children: a fleet may come with ten thousand sockets
    product = load_product(settings.product)
    keys = keep_keys(settings.data_dir / "keys") if settings.data_dir else make_keys()
    config = ServiceConfig(
        host=settings.host,
        port=settings.port,
        data_dir=settings.data_dir,
        api_key=keys.api_key,
        secret_key=keys.secret_key,
        rate_limit=settings.rate_limit,
        profile=COMPLETE,
        make_signals=make_signals,
    )
    ended: queue.SimpleQueue[PartEnded] = queue.SimpleQueue()
    with ExitStack() as ends:
        around = _Around()
        runs = RunSettings(settings.runs_dir, settings.scenarios_dir, around.add_to)
        console = functools.partial(make_console, settings=runs) if settings.console else None
        service = ends.enter_context(RunningService(config, ended.put, console))
        base_url = service.base_url
        others = _add_accounts(service, settings)
        identities: tuple[DeviceIdentity, ...] = ()
        if settings.devices:
            labels = [(f"virtual-{number:03d}", f"UP-{number:06d}") for number in range(1, settings.devices + 1)]
            identities = _register(base_url, keys, product, labels)
            ends.enter_context(_make_fleet(base_url, keys, identities, settings, ended.put)).switch_on()
        trial: Trial | None = None
        if settings.gateway:
            labels = [(f"your-{transport}-device", label) for transport, label in IDENTIFIERS.items()]
            yours = _register(base_url, keys, product, labels)
            device_ids = {transport: device.device_id for transport, device in zip(IDENTIFIERS, yours, strict=True)}
            folder = settings.data_dir or Path(ends.enter_context(TemporaryDirectory(prefix="fleet-simulator-up-")))
            own_url = base_url.replace("://0.0.0.0", "://127.0.0.1")
            trial = ends.enter_context(
                running_trial(
                    folder / "gateway", own_url, keys, device_ids, settings.gateway_port, mqtt_port=settings.mqtt_port
                )
            )
            around.found = folder, trial
        if settings.data_dir:
            found = LocalService(base_url.replace("://0.0.0.0", "://127.0.0.1"), settings.data_dir / "keys")
            ends.callback(remove_local, settings.data_dir)
            write_local(settings.data_dir, around.add_to(found))
        service.set_profile(profile)
        console_url = base_url + service.addition.entry_path() if service.addition else None
        on_ready(RunningParts(base_url, keys, identities, trial, others, console_url))
        if wait is not None:
            wait()
        else:
            _wait_for_an_end(ended, trial)


def _check_ports(settings: UpSettings) -> None:
    """Refuse a taken or a doubled port before anything is started; the service looks at its own."""
    if not settings.gateway:
        if settings.mqtt_port is not None:
            raise ConfigurationError([f"{MQTT_PORT_OPTION} is the broker's, which --no-gateway leaves out"], "up")
        return
    wanted = {
        "--port": settings.port,
        HTTP_PORT_OPTION: settings.gateway_port,
        MQTT_PORT_OPTION: settings.mqtt_port or 0,
    }
    for (one, port), (other, its_port) in itertools.combinations(wanted.items(), 2):
        if port and port == its_port:
            raise ConfigurationError([f"{one} and {other} are both {port}: give two that differ"], "up")
    check_port(HTTP_HOST, settings.gateway_port, HTTP_PORT_OPTION)
    check_port(HTTP_HOST, wanted[MQTT_PORT_OPTION], MQTT_PORT_OPTION)


def _add_accounts(service: RunningService, settings: UpSettings) -> tuple[Keys, ...]:
    """The accounts beside the first one, with the keys of an earlier start where the data folder has them."""
    from simulator.service.storage.keys import Keys as ServiceKeys  # lazily, as in run_up

    added = []
    for number in range(2, settings.accounts + 1):
        keys = keep_keys(settings.data_dir / f"keys-{number}") if settings.data_dir else make_keys()
        service.add_account(f"account-{number}", ServiceKeys(keys.api_key, keys.secret_key))
        added.append(keys)
    return tuple(added)


def _wait_for_an_end(ended: queue.SimpleQueue[PartEnded], trial: Trial | None) -> None:
    """Until a part has ended, which it raises; Ctrl-C gets through."""
    while True:
        try:
            raise ended.get(timeout=_LOOK_S)
        except queue.Empty:
            if trial is not None:
                trial.look()


def _register(
    base_url: str, keys: Keys, wanted: NewProduct, labels: Sequence[tuple[str, str]]
) -> tuple[DeviceIdentity, ...]:
    """The devices (name, identifier) and their product: made, or found in a data folder that has them already."""
    with ServiceClient(base_url, KeyPair(keys.api_key, keys.secret_key)) as client:
        known = next((product for product in client.products() if product.name == wanted.name), None)
        product = known or client.create_product(wanted)
        identities = []
        for name, identifier in labels:
            device = client.register_device(
                RegisterDevice(
                    user_id=_USER_ID,
                    product_id=product.product_id,
                    device_name=name,
                    device_identifier=identifier,
                )
            )
            identities.append(DeviceIdentity(device.device_id, product.product_id, name))
    return tuple(identities)


def _make_fleet(
    base_url: str,
    keys: Keys,
    identities: Sequence[DeviceIdentity],
    settings: UpSettings,
    on_failure: Callable[[PartEnded], object],
) -> FleetThread:
    with ServiceClient(base_url, KeyPair(keys.api_key, keys.secret_key)) as client:
        offers = client.discover()
    headers = {"x-api-key": keys.api_key, "x-secret-key": keys.secret_key.reveal()}
    model = DeviceModel(interval_s=settings.interval_s)
    target = FleetTarget(base_url, headers, offers)
    return FleetThread(target, identities, model, seed=settings.seed, on_failure=on_failure)
