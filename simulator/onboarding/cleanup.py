"""Take back what a run made, by its file."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from agent.errors import NotFound, ServiceError
from simulator.onboarding.agreement import Known, is_same
from simulator.onboarding.listing import read_devices
from simulator.onboarding.patience import Patience
from simulator.onboarding.run_file import MARK, DeviceRow, Outcome, RunFile
from simulator.wire.client import ServiceClient

_NOT_OURS = frozenset({Outcome.FOUND, Outcome.TAKEN, Outcome.GONE})


@dataclass(slots=True)
class CleanupReport:
    """What a cleanup did: how many it removed, and one sentence for each that is left."""

    devices: int = 0
    products: int = 0
    problems: list[str] = field(default_factory=list)


def clean_up(file: RunFile, client: ServiceClient, patience: Patience) -> CleanupReport:
    """Remove all devices and products of a run; the same again goes on where an earlier one was ended.

    What a registration without a clear answer made is looked for in the user's list.

    Args:
        file: of the run.
        client: with the account that the run was about.
        patience: how long a request waits for the quota.
    """
    report = CleanupReport()
    rows = [row for row in file.devices() if row.outcome not in _NOT_OURS]
    for user_id in dict.fromkeys(row.user_id for row in rows):
        of_user = [row for row in rows if row.user_id == user_id]
        try:
            _remove_devices(file, client, user_id, of_user, patience, report)
        except ServiceError as error:
            report.problems.append(f"devices of {user_id} are left: {error}")
    try:
        for product in patience.repeat(lambda: list(client.products())):
            if (product.name or "").startswith(file.mark):
                with contextlib.suppress(NotFound):
                    patience.repeat(lambda one=product.product_id: client.delete_product(one))  # type: ignore[misc]
                report.products += 1
    except ServiceError as error:
        report.problems.append(f"products are left: {error}")
    return report


def _remove_devices(
    file: RunFile, client: ServiceClient, user_id: str, rows: list[DeviceRow], patience: Patience, report: CleanupReport
) -> None:
    listed = patience.repeat(lambda: read_devices(client, user_id)).devices
    for row in rows:
        known = Known(row.device_identifier, row.product_id)
        found = {device.device_id for device in listed if is_same(known, device) and _is_marked(device.device_name)}
        if row.outcome is Outcome.REGISTERED:
            found.add(row.device_id)
        for device_id in filter(None, found):
            try:
                patience.repeat(lambda one=device_id: client.remove_device(one))  # type: ignore[misc]
                report.devices += 1
            except NotFound:
                pass
        file.note(row, outcome=Outcome.GONE)


def _is_marked(name: str | None) -> bool:
    """A plain server may leave the name out; another name says that the device was there before."""
    return (name or MARK).startswith(MARK)
