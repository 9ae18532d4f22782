"""Take back what a run made, by its file."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
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


def clean_up(file: RunFile, accounts: Mapping[str, ServiceClient], patience: Patience) -> CleanupReport:
    """Remove all devices and products of a run; the same again goes on where an earlier one was ended.

    What a registration without a clear answer made is looked for in the user's list.

    Args:
        file: of the run.
        accounts: by the name in the file: empty for its own, ``other`` for the second.
        patience: how long a request waits for the quota.
    """
    report = CleanupReport()
    rows = [row for row in file.devices() if row.outcome not in _NOT_OURS]
    for account, user_id in dict.fromkeys((row.account, row.user_id) for row in rows):
        of_user = [row for row in rows if (row.account, row.user_id) == (account, user_id)]
        client = accounts.get(account)
        if client is None:
            report.problems.append(
                f"{len(of_user)} device(s) of the other account: give --other-api-key and its secret"
            )
            continue
        try:
            _remove_devices(file, client, user_id, of_user, patience, report)
        except ServiceError as error:
            report.problems.append(f"devices of {user_id} are left: {error}")
    if file.about.get("other_account") == "yes" and "other" not in accounts:
        report.problems.append("products of the other account, if any: give --other-api-key and its secret")
    for client in accounts.values():
        try:
            for product in patience.repeat(lambda one=client: list(one.products())):  # type: ignore[misc]
                if (product.name or "").startswith(file.mark):
                    _delete_product(client, product.product_id, patience)
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


def _delete_product(client: ServiceClient, product_id: str, patience: Patience) -> None:
    with contextlib.suppress(NotFound):
        patience.repeat(lambda: client.delete_product(product_id))
