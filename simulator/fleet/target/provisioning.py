"""What a run needs on the target, made or found: a product and devices; and how it is taken away.

Product and devices carry the mark of this program. Cleanup goes by it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from agent.errors import ConfigurationError, Conflict, InvalidMessage, NotFound, Refused, UnexpectedAnswer
from agent.wire.models import Device, describe_faults
from gateway.client import RegisterDevice
from simulator.fleet.device.answers import read_written
from simulator.fleet.runner import DeviceIdentity
from simulator.fleet.target.client import TargetClient, for_each
from simulator.wire import paths
from simulator.wire.models import NewProduct, Product
from simulator.yaml_document import read_document

MARK: Final = "fleet-simulator"
"""``metadata.made_by`` of every product, and the begin of every device's name: cleanup goes by it."""
_PLAIN: Final = frozenset({"name", "category", "model", "description"})
"""The members of a product that the specification names."""

BUILT_IN: Final = "climate-node"
"""Whose commands the virtual devices understand."""

OnProgress = Callable[[int, int], None]
Record = TypeVar("Record", Device, Product)


def load_product(name: str = BUILT_IN, folder: Path = Path()) -> NewProduct:
    """A product as ``POST /products`` takes it.

    Args:
        name: :data:`BUILT_IN`, or the YAML file.
        folder: a relative path starts here.

    Raises:
        ConfigurationError: the file cannot be read or is no product; the text names the file and each fault.
    """
    source = files("simulator.fleet") / "climate-node.yaml" if name == BUILT_IN else folder / name
    try:
        document = read_document(source.read_bytes())
        if document.faults:
            raise ConfigurationError([str(fault) for fault in document.faults], str(source))
        return NewProduct.model_validate_json(json.dumps(document.value))
    except ValidationError as error:
        raise ConfigurationError([describe_faults(error)], str(source)) from None
    except OSError as error:
        raise ConfigurationError([f"cannot be read: {error.strerror}"], str(source)) from None


@dataclass(frozen=True, slots=True)
class Provisioned:
    """What is there now; the devices in the order of the identifiers."""

    product_id: str
    devices: tuple[DeviceIdentity, ...]


async def provision(
    client: TargetClient,
    wanted: NewProduct,
    identifiers: Sequence[str],
    on_progress: OnProgress,
    *,
    scenario: str,
    user_id: str,
) -> Provisioned:
    """Find or make the product and every device.

    Registering a device again answers the same record, so a run that was killed in the middle goes on from there.

    Args:
        client: how to ask the target.
        wanted: the product as its file has it; the mark is added.
        identifiers: one for each device.
        on_progress: called with how many devices are there and how many are wanted.
        scenario: whose devices they are.
        user_id: account that the devices are linked to.

    Raises:
        Conflict: an identifier is registered for somebody else.
        ServiceError: the target refused something, or does not answer.
    """
    product_id = await _product(client, wanted)
    found = await _registered(client, user_id, product_id, set(identifiers))
    total = len(identifiers)
    nameless: list[str] = []
    on_progress(total - sum(name not in found for name in identifiers), total)

    async def register(numbered: tuple[int, str]) -> None:
        number, identifier = numbered
        body = RegisterDevice(
            user_id=user_id,
            product_id=product_id,
            device_name=f"{MARK} {scenario} {number:06d}",
            device_identifier=identifier,
        )
        try:
            answer = await client.ask("POST", paths.ONBOARDING_DEVICES, body.to_wire())
        except Conflict as error:
            error.add_note(f"give the scenario another fleet.prefix or fleet.user_id: {identifier} is taken")
            raise
        device_id = read_written(Device, answer, "device", {}).device_id
        if not device_id:
            nameless.append(identifier)
            return
        found[identifier] = device_id
        on_progress(len(found), total)

    await for_each([each for each in enumerate(identifiers) if each[1] not in found], register)
    if nameless:
        found |= await _registered(client, user_id, product_id, set(nameless))
        if lost := [name for name in nameless if not found.get(name)]:
            raise UnexpectedAnswer(
                f"the service registered {len(lost)} devices such as {lost[0]}, and neither its answers nor the list "
                f"of {user_id}'s devices names their device_id: let one of the two name it"
            )
    on_progress(total, total)
    return Provisioned(product_id, tuple(DeviceIdentity(found[name], product_id, name) for name in identifiers))


async def _product(client: TargetClient, wanted: NewProduct) -> str:
    name = f"{MARK} {wanted.name}"
    if product_id := await _product_named(client, name):
        return product_id
    mark = {**(wanted.metadata or {}), "made_by": MARK}
    body = wanted.model_copy(update={"name": name, "metadata": mark}).to_wire()
    try:
        answer = await client.ask("POST", paths.PRODUCTS, body)
    except Refused:  # members beyond those that the specification names
        answer = await client.ask("POST", paths.PRODUCTS, {n: v for n, v in body.items() if n in _PLAIN})
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
        for product in await _listed(client, paths.PRODUCTS, Product):
            if product.name == name and _is_marked(product):
                return product.product_id
    return ""


async def _registered(client: TargetClient, user_id: str, product_id: str, names: set[str]) -> dict[str, str]:
    """Identifier -> device id, of those that are there already."""
    with contextlib.suppress(NotFound):  # a user is created by the first registration
        return {
            device.device_identifier: device.device_id
            for device in await _listed(client, paths.user_devices(user_id), Device)
            if device.product_id in {None, product_id} and device.device_identifier in names
        }
    return {}


async def _listed(client: TargetClient, path: str, model: type[Record]) -> list[Record]:
    """A list to its end; rows that are no such records are left out."""
    found: list[Record] = []
    async for items in client.pages(path, client.paging):
        for item in items:
            with contextlib.suppress(InvalidMessage, UnexpectedAnswer):
                found.append(model.receive(item))
    return found


def _is_marked(product: Product) -> bool:
    if product.metadata is None:  # a service that keeps no further members has the name alone
        return (product.name or "").startswith(f"{MARK} ")
    return product.metadata.get("made_by") == MARK


# --- taken away -------------------------------------------------------------------------------------------------------


async def clean_up(
    client: TargetClient, on_progress: OnProgress, *, prefix: str = "", dry_run: bool = False
) -> tuple[int, int, tuple[str, ...]]:
    """Take away the products that carry the mark, with their devices.

    Args:
        client: how to ask the target.
        on_progress: called with how many devices are gone and how many there were.
        prefix: only devices whose identifier begins with it, and the products that are then without any device.
        dry_run: only count.

    Returns:
        How many devices and how many products were taken away, and the names of these.

    Raises:
        ServiceError: the target refused something, or does not answer.
    """
    products = await _listed(client, paths.PRODUCTS, Product)
    marked = {product.product_id: product.name or "" for product in products if _is_marked(product)}
    if not marked:
        return 0, 0, ()
    ours = [
        device
        for device in await _listed(client, paths.DEVICES, Device)
        if device.device_id
        # Where the list names no product, a device with the mark in its own name.
        and (device.product_id in marked if device.product_id else (device.device_name or "").startswith(f"{MARK} "))
    ]
    chosen, in_use = list[Device](), set[str | None]()
    for device in ours:
        if (device.device_identifier or "").startswith(prefix):
            chosen.append(device)
        else:
            in_use.add(device.product_id)
    # A device whose product the list does not name may be of any.
    product_ids = [] if None in in_use else [one for one in marked if one not in in_use]
    count = len(chosen), len(product_ids), tuple(marked[one] for one in product_ids)
    if dry_run:
        return count
    gone = 0

    async def remove(device: Device) -> None:
        nonlocal gone
        await _delete(client, paths.onboarding_device(device.device_id))
        gone += 1
        on_progress(gone, len(chosen))

    await for_each(chosen, remove)
    for product_id in product_ids:
        await _delete(client, paths.product(product_id))
    return count


async def _delete(client: TargetClient, target: str) -> None:
    # Not there any more: somebody else took it away, and that is what was wanted.
    with contextlib.suppress(NotFound):
        await client.ask("DELETE", target)
