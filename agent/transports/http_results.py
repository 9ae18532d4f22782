"""Results of commands over HTTP: to their commands, into a table of the product, or nowhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from agent.core.listed import ListWatch
from agent.core.unreported import ReportFault, fault_of
from agent.core.values import Report
from agent.errors import (
    Forbidden,
    InvalidMessage,
    NoPlaceForResults,
    NotFound,
    Refused,
    ServerFault,
    UnexpectedAnswer,
)
from agent.transports.discovery import Discovery, KeyedSender
from agent.wire.base import describe_faults
from agent.wire.client import DeviceClient
from agent.wire.dialect import ResultPlace
from agent.wire.extensions import COMMAND_RESULTS
from agent.wire.times import to_rfc3339

ModelT = TypeVar("ModelT", bound=BaseModel)

IN_PROGRESS: Final = "in_progress"
# The errors of a path that a server does not have; those of a missing command have names of their own.
_NO_PATH: Final = frozenset({"", "not_found", "not found"})
_NO_METHOD: Final = frozenset({405, 501})
# One refusal or failure is an accident; after so many in a row the table counts as no place.
_FAILURES: Final = 3


class HttpResults:
    """Reports results where this service takes them. What it refuses is raised as it is; the caller judges.

    Args:
        client: its requests are not interrupted.
        device_id: whose results.
        product_id: whose table takes them on a plain server; None where it is not known.
        discovery: what the service offers.
        watch: receives the ids of commands whose results were taken.
    """

    def __init__(
        self,
        client: DeviceClient,
        device_id: str,
        product_id: str | None,
        discovery: Discovery,
        watch: ListWatch | None = None,
    ) -> None:
        self._client = client
        self._device_id = device_id
        self._product_id = product_id
        self._discovery = discovery
        self._watch = watch
        self._keyed = KeyedSender(discovery)
        self._endpoint_works = False
        self._failures = 0

    def report(self, report: Report) -> None:
        """Send the service how a command goes or ended. A table has no place for progress: it is left out there.

        See :meth:`agent.ports.Uplink.report`.

        Raises:
            NoPlaceForResults: there is none, by the configuration, or since this device's product is not known.
            ServiceError: as the service answered.
        """
        place = self._discovery.dialect.results
        if place is None:
            place = ResultPlace.ENDPOINT if self._discovery.offers(COMMAND_RESULTS) else ResultPlace.TABLE
        is_progress = report.status == IN_PROGRESS
        if place is not ResultPlace.ENDPOINT or not self._report_to_command(report):
            if is_progress:
                return
            if place is ResultPlace.NONE:
                raise NoPlaceForResults("service.dialect.results is none, so results stay on this device")
            self._record(report)
        self._failures = 0
        if self._discovery.profile.no_place:
            self._discovery.note(no_place="")
        if self._watch is not None and not is_progress:
            self._watch.reported(report.command_id)

    def _report_to_command(self, report: Report) -> bool:
        """False when the service turns out to have no such endpoint, so that the table is next."""
        from agent.wire.commands import CommandResult  # with the first result

        body = valid(lambda: CommandResult(status=report.status, result=report.result, error=report.error))  # type: ignore[arg-type]  # checked by the model
        try:
            self._client.report_result(self._device_id, report.command_id, body)
        except InvalidMessage as error:
            raise Refused(400, "invalid_result", str(error)) from error
        except NotFound as error:
            # Either the command is gone or the service is another one now: look again what it offers.
            self._discovery.forget()
            if not self._is_missing(error.error):
                raise
            self._withdraw(str(error))
            return False
        except (Refused, ServerFault) as error:
            if error.status not in _NO_METHOD or not self._is_missing(""):
                raise
            self._withdraw(str(error))
            return False
        self._endpoint_works = True
        return True

    def _is_missing(self, error: str) -> bool:
        is_auto = self._discovery.dialect.results is None
        return is_auto and not self._endpoint_works and error.lower() in _NO_PATH

    def _withdraw(self, reason: str) -> None:
        if self._discovery.offers(COMMAND_RESULTS):
            self._discovery.withdraw(COMMAND_RESULTS, reason)

    def _record(self, report: Report) -> None:
        # Only plain servers need it.
        from agent.wire.commands import CommandResultPayload
        from agent.wire.models import NewRuntimeRecord

        payload = valid(
            lambda: CommandResultPayload(
                command_id=report.command_id,
                status=report.status,  # type: ignore[arg-type]  # checked by the model
                result=report.result,
                error=report.error,
                started_at=None if report.started_at is None else to_rfc3339(report.started_at),
                finished_at=None if report.finished_at is None else to_rfc3339(report.finished_at),
            )
        )
        table = self._discovery.dialect.results_table
        record = NewRuntimeRecord(
            product_id=self._product(),
            device_id=self._device_id,
            table_name=table,
            data_payload=payload.to_wire(),
        )
        try:
            self._keyed.send(
                f"result-{report.command_id}",
                lambda key: self._client.create_runtime_record(record, idempotency_key=key),
            )
        except NotFound as error:
            self._no_place(str(error))
            text = (
                f"{error.message}; results of product {record.product_id} go into table {table!r}: create it, or "
                "correct device.product_id, or set service.dialect.results"
            )
            raise NotFound(error.status, error.error, text.lstrip("; ")) from error
        except (Forbidden, Refused, ServerFault, UnexpectedAnswer) as error:
            self._failures += 1
            # What refuses the content of one result may be a place for others.
            if fault_of(error) is ReportFault.NO_PLACE or self._failures >= _FAILURES:
                self._no_place(str(error))
            raise

    def _no_place(self, reason: str) -> None:
        self._discovery.note(no_place=reason)

    def _product(self) -> str:
        if self._product_id is None:
            reason = "results go into a table of the product, which is not known: set device.product_id"
            self._no_place(reason)
            raise NoPlaceForResults(reason)
        return self._product_id


def valid(build: Callable[[], ModelT]) -> ModelT:
    """The message, if it can be one.

    Raises:
        Refused: it cannot, and why.
    """
    try:
        return build()
    except ValidationError as error:
        raise Refused(400, "invalid_result", describe_faults(error)) from error
    except InvalidMessage as error:
        raise Refused(400, "invalid_result", str(error)) from error
