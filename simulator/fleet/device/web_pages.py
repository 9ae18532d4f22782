"""Distinguishes the service's own web pages from others, for all devices of a target, by the agent's own rules.

A server may answer writes and errors with HTML, and so do captive portals (:mod:`agent.wire.identity`). Where only a
proof can show whose page it is, one ``GET /devices`` goes out for all devices together, and the answers that came in
the meantime wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import httpx

from agent.wire.faults import TRUSTED_IN_HTML
from agent.wire.identity import PROOF_PATH, Identity, PageVerdict, is_page, is_proof
from simulator.fleet.device.fast_path import stamps_of
from simulator.fleet.device.http_codec import Operation, Request
from simulator.fleet.device.request_template import RequestTemplate
from simulator.fleet.engine.ports import Headers, HttpAnswer, HttpEngine
from simulator.fleet.outcomes import OutcomeClass

Proved = Callable[[bool], None]
"""Called once, when the proof is there or failed to come."""

_KINDS_MAX: Final = 256
_BEGUN_BYTES: Final = 200
_PROOF: Final = Request(Operation.POLL, "GET", PROOF_PATH)


class _Waiting(NamedTuple):
    method: str
    path: str
    status: int
    body: bytes
    then: Callable[[bool], None]
    device: int


class WebPages:
    """What one target has answered so far, and the proofs asked of it. For one thread.

    Args:
        prove: sends ``GET /devices`` for the device that met the page, and calls back once, from outside of this call
            or from within it.
        now: monotonic seconds.
    """

    def __init__(self, prove: Callable[[int, Proved], None], now: Callable[[], float]) -> None:
        self._prove = prove
        self._now = now
        self._identity = Identity()
        self._noted: set[tuple[str, int]] = set()
        self._waiting: list[_Waiting] = []
        self._is_asking = False

    def note(self, operation: str | None, method: str, target: str, status: int) -> None:
        """An answer that is no web page came; cheap for the many of one kind.

        Args:
            operation: what the request is for, where all its paths are of one kind; else None.
            method: of the request.
            target: path and query.
            status: the status code.
        """
        kind = (operation or "", status)
        if kind not in self._noted:
            if operation is not None and len(self._noted) < _KINDS_MAX:
                self._noted.add(kind)
            self._identity.note(method, target.partition("?")[0], status)

    def sort(
        self,
        operation: str | None,
        method: str,
        target: str,
        answer: HttpAnswer,
        then: Callable[[bool], None],
        *,
        device: int = 0,
    ) -> None:
        """Find out whether an answer is the service's own web page, so that its status counts.

        Args:
            operation: as for :meth:`note`.
            method: of the request.
            target: path and query.
            answer: what came, a web page or not.
            then: called once with whether it is the service's own page; at once unless a proof is needed.
            device: whose request it was; index in the fleet.
        """
        status = answer.status
        if not is_page_answer(answer):
            self.note(operation, method, target, status)
            then(False)
            return
        is_judged = (200 <= status < 300 or 400 <= status < 500) and status not in TRUSTED_IN_HTML
        if not is_judged:
            then(False)
            return
        self._judge(_Waiting(method, target.partition("?")[0], status, answer.body, then, device), may_prove=True)

    def _judge(self, page: _Waiting, *, may_prove: bool) -> None:
        now_s = self._now()
        verdict = self._identity.judge(page.method, page.path, page.status, page.body, now_s)
        if verdict is not PageVerdict.DOUBTFUL or not may_prove:
            page.then(verdict is PageVerdict.MEANT)
        elif self._is_asking:
            self._waiting.append(page)
        elif self._identity.may_ask(now_s):
            self._is_asking = True
            self._identity.asked(now_s, good=False)
            self._waiting.append(page)
            self._prove(page.device, self._proved)
        else:
            page.then(False)

    def _proved(self, good: bool) -> None:
        self._is_asking = False
        now_s = self._now()
        self._identity.asked(now_s, good=good)
        waiting, self._waiting = self._waiting, []
        if good and waiting:  # the proof is that of the page that was first; others count if they are the same
            first = waiting[0]
            self._identity.proved(first.method, first.path, first.status, first.body, now_s)
        for page in waiting:
            self._judge(page, may_prove=False)


class DevicePages(WebPages):
    """Web pages of the target of many devices; a proof goes out over the connection on which the page came.

    Args:
        engine: carries the proof.
        template_of: the head of a device's requests, by its number in the fleet.
        timeout_s: for the proof.
        now: monotonic seconds.
    """

    def __init__(
        self,
        engine: HttpEngine,
        template_of: Callable[[int], RequestTemplate],
        timeout_s: float,
        now: Callable[[], float],
    ) -> None:
        super().__init__(self._send_proof, now)
        self._engine = engine
        self._template_of = template_of
        self._timeout_s = timeout_s
        self._proof: _ProofCaller | None = None

    def judge(self, request: Request, device: int, answer: HttpAnswer, then: Callable[[bool], None]) -> None:
        """Call ``then`` with whether the answer is the service's own web page; later, where a proof is needed."""
        self.sort(request.operation, request.method, request.target, answer, then, device=device)

    def power_lost(self, device: int) -> None:
        """The device whose connection may carry the proof has no power any more."""
        if self._proof is not None and self._proof.device == device:
            self._proof.end(good=False)

    def _send_proof(self, device: int, proved: Proved) -> None:
        def ended(good: bool) -> None:
            self._proof = None
            proved(good)

        self._proof = _ProofCaller(device, ended)
        self._engine.send(device, self._template_of(device).message(_PROOF), self._proof, self._timeout_s)


class _ProofCaller:
    """The engine's caller of a proof, which nobody measures.

    Args:
        device: whose connection carries it.
        ended: called once with whether the answer was the service's.
    """

    __slots__ = ("_ended", "device")

    def __init__(self, device: int, ended: Proved) -> None:
        self.device = device
        self._ended: Proved | None = ended

    def answered(self, status: int, headers: Headers, body: bytes, sent_s: float, now_s: float) -> None:
        """The answer came. See :class:`~simulator.fleet.engine.ports.Caller`."""
        del sent_s, now_s
        self.end(good=is_proof_answer(HttpAnswer(status, headers, body)))

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """No answer. See :class:`~simulator.fleet.engine.ports.Caller`."""
        del outcome, reason, sent_s, now_s
        self.end(good=False)

    def end(self, *, good: bool) -> None:
        """The proof came, or will not; twice does no harm."""
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(good)


def is_page_answer(answer: HttpAnswer) -> bool:
    """Whether an answer is a web page; cheap for JSON under a head that came before."""
    body = answer.body
    if not body or (body[0] in b"{[" and stamps_of(answer.headers) is not None):
        return False
    return is_page(httpx.Headers(answer.headers).get("content-type", ""), answer.body)


def is_proof_answer(answer: HttpAnswer) -> bool:
    """Whether the answer to ``GET /devices`` is the service's."""
    content_type = httpx.Headers(answer.headers).get("content-type", "")
    return is_proof(answer.status, content_type, answer.body[:_BEGUN_BYTES])
