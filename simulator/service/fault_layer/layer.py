"""The ASGI layer in front of everything else that lets requests meet the faults of the service.

It stands where a proxy would: before keys, quota and profile are looked at, so that every effect holds on every path,
pages, streams and errors included. Without rules, and without the header for
one request, it costs a look at the rules and at the names of the headers.
"""

from __future__ import annotations

import functools
from random import Random
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp, Receive, Scope, Send

from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.answers import send_answer
from simulator.service.connection import RAW_SEND, close, connection_of, reset
from simulator.service.control_access import ControlAccess, is_local
from simulator.service.errors import ServiceError, invalid
from simulator.service.fault_layer.answers import chosen_answer
from simulator.service.fault_layer.inbox import Inbox
from simulator.service.fault_layer.sending import Sending
from simulator.service.faults.model import FaultEffect
from simulator.service.faults.rules import FAULTS_MET, ONE_SHOT, Decision, draw_latency
from simulator.service.faults.short_form import read_effect
from simulator.service.http_errors import HttpError, http_error_of
from simulator.service.request_matches import read_facts
from simulator.service.waiting import hold

if TYPE_CHECKING:
    from simulator.service.service import Service

FAULT_HEADER: Final = b"x-emulator-fault"
"""Request header: an effect for this request alone."""


class FaultLayer:
    """Stands before the service and its profiles.

    Args:
        app: what answers.
        service: whose faults they are.
        access: who may ask for a fault by a header.
    """

    def __init__(self, app: ASGIApp, service: Service, access: ControlAccess) -> None:
        self._app = app
        self._service = service
        self._faults = service.faults
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's start and end."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        header = None
        for name, value in scope["headers"]:
            if name == FAULT_HEADER:
                header = value
        if header is None and (not self._faults.live or scope["path"].startswith(CONTROL_PREFIX)):
            await self._app(scope, receive, send)
            return
        if self._access.is_observer(scope):
            await self._app(scope, receive, send)
            return
        try:
            effect = None if header is None else self._read(scope, header)
        except ServiceError as exc:
            await send_answer(send, http_error_of(exc).answer(), [])
            return
        await self._meet(scope, receive, send, effect)

    def _read(self, scope: Scope, header: bytes) -> FaultEffect:
        """The effect that the header names.

        Raises:
            ServiceError: it may not, or it names none.
        """
        if not (self._service.config.control and is_local(scope)):
            text = "X-Emulator-Fault is for callers on this machine, of a service that has its control paths."
            raise HttpError(403, "control_off", text)
        self._access.check(scope, dict(scope["headers"]))
        if scope["path"].startswith(CONTROL_PREFIX):
            raise invalid("X-Emulator-Fault", "control paths meet no faults")
        effect = read_effect(header.decode("latin-1"), "X-Emulator-Fault")
        if effect.needs_body and scope["method"] == "HEAD":
            raise invalid("X-Emulator-Fault", f"{effect.name} has no effect: the answer to a HEAD has no body")
        return effect

    async def _meet(self, scope: Scope, receive: Receive, send: Send, of_header: FaultEffect | None) -> None:
        inbox = Inbox(receive)
        decision = Decision()
        if of_header is not None:
            decision = _first(of_header)
        if decision.effect is None:
            decision = await self._decide(scope, inbox, decision)
        if not decision.fault_ids:
            await self._app(scope, inbox.receive, send)
            return
        scope[FAULTS_MET] = decision.fault_ids
        scope.setdefault(RAW_SEND, send)
        # A connection that is closed while something of the request is unread ends with a RST.
        if await inbox.read() is not None:
            await self._carry_out(decision, scope, inbox, receive, send)

    async def _decide(self, scope: Scope, inbox: Inbox, before: Decision) -> Decision:
        rules = self._faults.live
        body: bytes | None = b""
        if any(rule.matcher.names_things for rule in rules):
            body = await inbox.read()
        if not rules or body is None:
            return before
        try:
            facts = await read_facts(self._service, scope, body)
        except (ServiceError, SQLAlchemyError):  # the service itself answers what that means
            return before
        return self._faults.decide(facts, before)

    async def _carry_out(self, decision: Decision, scope: Scope, inbox: Inbox, receive: Receive, send: Send) -> None:
        effect = decision.effect
        with self._faults.holding() as released:
            answered = effect is not None and effect.answer is not None
            wait_s = decision.request_s + (decision.answer_s if answered else 0.0)
            if wait_s and not await hold(released, receive, wait_s):
                return
            if effect is not None and effect.answer is not None:
                await send_answer(send, chosen_answer(effect.answer, self._service.clock.now_ms()), [])
            elif effect is not None and "request" in {effect.lose, effect.reset}:
                (reset if effect.reset else close)(connection_of(scope, send))
            else:
                sending = Sending(
                    scope,
                    send,
                    functools.partial(hold, released, receive),
                    decision.answer_s,
                    effect,
                )
                await self._app(scope, inbox.receive, sending.send)


def _first(effect: FaultEffect) -> Decision:
    """The effect of the header, which stands before all rules."""
    if effect.latency is None:
        return Decision((ONE_SHOT,), effect=effect)
    wait_s = draw_latency(effect.latency, Random())  # noqa: S311 - it is no secret
    return Decision().with_wait(ONE_SHOT, effect.latency, wait_s)
