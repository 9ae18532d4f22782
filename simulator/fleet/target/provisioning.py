"""What a run needs on the target, made or found: a product and devices, each with the mark of this program."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent.errors import Conflict, InvalidMessage, NotFound, Refused, UnexpectedAnswer
from agent.wire.models import Device
from gateway.client import RegisterDevice
from simulator.fleet.device.answers import read_written
from simulator.fleet.runner import DeviceIdentity
from simulator.fleet.target.client import TargetClient, for_each
from simulator.wire import paths
from simulator.wire.models import NewProduct, Product

MARK: Final = "fleet-simulator"
"""``metadata.made_by`` of every product, and the begin of every device's name: cleanup goes by it."""
_PLAIN: Final = frozenset({"name", "category", "model", "description"})
"""The members of a product that the specification names."""
_TOLD_EVERY: Final = 100

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ProvisioningRequest:
    """What a run asks for.

    Attributes:
        product: as its file has it; the mark is added.
        scenario: whose devices they are.
        user_id: account that the devices are linked to.
        identifiers: one for each device, in the order of the devices' indices.
    """

    product: NewProduct
    scenario: str
    user_id: str
    identifiers: Sequence[str]


@dataclass(frozen=True, slots=True)
class Provisioned:
    """What is there now.

    Attributes:
        devices: in the order of the identifiers.
        made: how many of them were registered just now; the others were there from an earlier run.
    """

    product_id: str
    devices: tuple[DeviceIdentity, ...]
    made: int


async def provision(client: TargetClient, wanted: ProvisioningRequest, on_progress: OnProgress) -> Provisioned:
    """Find or make the product and every device.

    Registering a device again answers the same record, so a run that was killed in the middle goes on from there.

    Args:
        client: how to ask the target.
        wanted: what is needed.
        on_progress: called now and then, with how many devices are there and how many are wanted.

    Raises:
        Conflict: an identifier is registered for somebody else.
        ServiceError: the target refused something, or does not answer.
    """
    product_id = await _product(client, wanted)
    found = await _registered(client, wanted, product_id)
    missing = [number for number, name in enumerate(wanted.identifiers) if name not in found]
    total = len(wanted.identifiers)
    nameless: list[str] = []
    on_progress(total - len(missing), total)

    async def register(number: int) -> None:
        identifier = wanted.identifiers[number]
        body = RegisterDevice(
            user_id=wanted.user_id,
            product_id=product_id,
            device_name=f"{MARK} {wanted.scenario} {number:06d}",
            device_identifier=identifier,
        )
        try:
            answer = await client.ask("POST", paths.ONBOARDING_DEVICES, body.to_wire())
        except Conflict as error:
            error.add_note(f"give the scenario another identities.prefix or user_id: {identifier} is taken")
            raise
        device_id = read_written(Device, answer, "device", {}).device_id
        if not device_id:
            nameless.append(identifier)
            return
        found[identifier] = device_id
        if len(found) % _TOLD_EVERY == 0:
            on_progress(len(found), total)

    await for_each(missing, register)
    if nameless:
        found |= await _registered(client, wanted, product_id)
        if lost := [name for name in nameless if not found.get(name)]:
            raise UnexpectedAnswer(
                f"the service registered {len(lost)} devices such as {lost[0]}, and neither its answers nor the list "
                f"of {wanted.user_id}'s devices names their device_id: let one of the two name it"
            )
    on_progress(total, total)
    devices = tuple(DeviceIdentity(found[name], product_id, name) for name in wanted.identifiers)
    return Provisioned(product_id, devices, len(missing))


async def _product(client: TargetClient, wanted: ProvisioningRequest) -> str:
    name = f"{MARK} {wanted.product.name}"
    if product_id := await _product_named(client, name):
        return product_id
    mark = {**(wanted.product.metadata or {}), "made_by": MARK}
    body = wanted.product.model_copy(update={"name": name, "metadata": mark})
    try:
        answer = await client.ask("POST", paths.PRODUCTS, body.to_wire())
    except Refused:  # members beyond those that the specification names
        answer = await client.ask("POST", paths.PRODUCTS, {n: v for n, v in body.to_wire().items() if n in _PLAIN})
    product_id = read_written(Product, answer, "product", {}).product_id or await _product_named(client, name)
    if not product_id:
        raise UnexpectedAnswer(
            f"the service made the product {name!r}, and neither its answer nor GET /products names its id: let one of "
            "the two name it"
        )
    return product_id


async def _product_named(client: TargetClient, name: str) -> str:
    """The id of this program's product of that name; empty where there is none."""
    with contextlib.suppress(NotFound):  # a service may say so where there is no product at all
        async for items in client.pages(paths.PRODUCTS, client.paging):
            for item in items:
                product = _received_product(item)
                if product is not None and product.name == name and is_marked(product):
                    return product.product_id
    return ""


async def _registered(client: TargetClient, wanted: ProvisioningRequest, product_id: str) -> dict[str, str]:
    """Identifier -> device id, of those that are there already."""
    names = set(wanted.identifiers)
    found: dict[str, str] = {}
    target = paths.user_devices(wanted.user_id)
    # A user is created by the first registration; before that there is none to ask for.
    with contextlib.suppress(NotFound):
        async for items in client.pages(target, client.paging):
            for device in filter(None, map(_received_device, items)):
                if device.product_id in {None, product_id} and device.device_identifier in names:
                    found[device.device_identifier] = device.device_id
    return found


def is_marked(product: Product) -> bool:
    """Whether this program made it."""
    if product.metadata is None:  # a service that keeps no further members has the name alone
        return (product.name or "").startswith(f"{MARK} ")
    return product.metadata.get("made_by") == MARK


@dataclass(slots=True)
class CleanupCount:
    """What a cleanup took away.

    Attributes:
        products, devices: how many.
        names: of the products.
    """

    products: int = 0
    devices: int = 0
    names: tuple[str, ...] = ()


async def clean_up(
    client: TargetClient, on_progress: OnProgress, *, prefix: str = "", dry_run: bool = False
) -> CleanupCount:
    """Take away the products that carry the mark, with their devices.

    Args:
        client: how to ask the target.
        on_progress: called now and then, with how many devices are gone and how many there were.
        prefix: only devices whose identifier begins with it, and the products that are then without any device, when
            one of these was theirs; empty takes all.
        dry_run: only count.

    Raises:
        ServiceError: the target refused something, or does not answer.
    """
    marked: dict[str, str] = {}
    async for items in client.pages(paths.PRODUCTS, client.paging):
        products = filter(None, map(_received_product, items))
        marked |= {product.product_id: product.name or "" for product in products if is_marked(product)}
    if not marked:
        return CleanupCount()
    ours: list[Device] = []
    async for items in client.pages(paths.DEVICES, client.paging):
        devices = filter(None, map(_received_device, items))
        ours += [device for device in devices if device.device_id and _is_ours(device, marked)]
    chosen = [device for device in ours if (device.device_identifier or "").startswith(prefix)]
    product_ids = _emptied(marked, ours, chosen) if prefix else list(marked)
    device_ids = [device.device_id for device in chosen]
    count = CleanupCount(len(product_ids), len(device_ids), tuple(marked[one] for one in product_ids))
    if dry_run:
        return count
    gone = 0

    async def remove(device_id: str) -> None:
        nonlocal gone
        await _delete(client, paths.onboarding_device(device_id))
        gone += 1
        if gone % _TOLD_EVERY == 0:
            on_progress(gone, len(device_ids))

    await for_each(device_ids, remove)
    on_progress(gone, len(device_ids))
    for product_id in product_ids:
        await _delete(client, paths.product(product_id))
    return count


def _emptied(marked: Iterable[str], ours: Iterable[Device], chosen: Iterable[Device]) -> list[str]:
    """The marked products that lose all of their devices; none while the list names no product for some device."""
    leaving = Counter(device.product_id for device in chosen)
    there = Counter(device.product_id for device in ours)
    return [] if None in there else [one for one in marked if leaving[one] and leaving[one] == there[one]]


async def _delete(client: TargetClient, target: str) -> None:
    # Not there any more: somebody else took it away, and that is what was wanted.
    with contextlib.suppress(NotFound):
        await client.ask("DELETE", target)


def _is_ours(device: Device, marked: Mapping[str, str]) -> bool:
    """Of a marked product; where the list names none, a device with the mark in its own name."""
    if device.product_id is None:
        return (device.device_name or "").startswith(f"{MARK} ")
    return device.product_id in marked


def _received_device(item: Any) -> Device | None:
    try:
        return Device.receive(item)
    except (InvalidMessage, UnexpectedAnswer):
        return None


def _received_product(item: Any) -> Product | None:
    try:
        return Product.receive(item)
    except (InvalidMessage, UnexpectedAnswer):
        return None
