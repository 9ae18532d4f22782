"""Results of commands over HTTP: to their commands, into a table of the product, or nowhere."""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError

from agent.core.commands import ReportFault, fault_of
from agent.core.values import IN_PROGRESS, Report
from agent.errors import (
    Forbidden,
    InvalidMessage,
    NoPlaceForResults,
    NotFound,
    Refused,
    ServerFault,
    UnexpectedAnswer,
)
from agent.transports.discovery import Discovery
from agent.wire.base import describe_faults
from agent.wire.client import DeviceClient
from agent.wire.commands import CommandResult, CommandResultPayload
from agent.wire.dialect import ResultPlace
from agent.wire.extensions import COMMAND_RESULTS
from agent.wire.models import NewRuntimeRecord
from agent.wire.times import to_rfc3339

# One refusal or failure is an accident; after so many in a row the table counts as no place.
_FAILURES: Final = 3


class HttpResults:
    """Reports results where this service takes them. What it refuses is raised as it is; the caller judges.

    Args:
        client: its requests are not interrupted.
        device_id: whose results.
        product_id: whose table takes them on a plain server; None where it is not known.
        discovery: what the service offers.
    """

    def __init__(self, client: DeviceClient, device_id: str, product_id: str | None, discovery: Discovery) -> None:
        self._client = client
        self._device_id = device_id
        self._product_id = product_id
        self._discovery = discovery
        self._failures = 0

    def report(self, report: Report) -> None:
        """Send the service how a command goes or ended. A table has no place for progress: it is left out there.

        Raises:
            NoPlaceForResults: there is none, by the configuration, or since this device's product is not known.
            Refused: it cannot be a result.
            ServiceError: as the service answered.
        """
        place = self._discovery.dialect.results
        if place is None:
            place = ResultPlace.ENDPOINT if self._discovery.offers(COMMAND_RESULTS) else ResultPlace.TABLE
        if place is not ResultPlace.ENDPOINT and report.status == IN_PROGRESS:
            return
        if place is ResultPlace.NONE:
            raise NoPlaceForResults("service.dialect.results is none, so results stay on this device")
        try:
            if place is ResultPlace.ENDPOINT:
                self._report_to_command(report)
            else:
                self._record(report)
        except (ValidationError, InvalidMessage) as error:
            raise Refused(400, "invalid_result", describe_faults(error)) from error
        self._failures = 0
        self._discovery.set_no_place("")

    def _report_to_command(self, report: Report) -> None:
        body = CommandResult(status=report.status, result=report.result, error=report.error)  # type: ignore[arg-type]  # checked by the model
        try:
            self._client.report_result(self._device_id, report.command_id, body)
        except NotFound:
            # Either the command is gone or the service is another one now: ask again what it offers.
            self._discovery.forget()
            raise

    def _record(self, report: Report) -> None:
        if self._product_id is None:
            reason = "results go into a table of the product, which is not known: set device.product_id"
            self._discovery.set_no_place(reason)
            raise NoPlaceForResults(reason)
        table = self._discovery.dialect.results_table
        payload = CommandResultPayload(
            command_id=report.command_id,
            status=report.status,  # type: ignore[arg-type]  # checked by the model
            result=report.result,
            error=report.error,
            started_at=None if report.started_at is None else to_rfc3339(report.started_at),
            finished_at=None if report.finished_at is None else to_rfc3339(report.finished_at),
        )
        record = NewRuntimeRecord(
            product_id=self._product_id, device_id=self._device_id, table_name=table, data_payload=payload.to_wire()
        )
        try:
            key = self._discovery.key(f"result-{report.command_id}")
            self._client.create_runtime_record(record, idempotency_key=key)
        except NotFound as error:
            self._discovery.set_no_place(str(error))
            text = (
                f"{error.message}; results of product {record.product_id} go into table {table!r}: create it, or "
                "correct device.product_id, or set service.dialect.results"
            )
            raise NotFound(error.status, error.error, text.lstrip("; ")) from error
        except (Forbidden, Refused, ServerFault, UnexpectedAnswer) as error:
            self._failures += 1
            # What refuses the content of one result may be a place for others.
            if fault_of(error) is ReportFault.NO_PLACE or self._failures >= _FAILURES:
                self._discovery.set_no_place(str(error))
            raise
