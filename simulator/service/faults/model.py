"""A rule as it is sent: which requests, at which times, with which effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from agent.wire.base import Sent
from agent.wire.limits import INT_MAX
from simulator.service.matching import RequestMatch

HELD_MAX_S: Final = 600.0
"""The longest time that an answer is held, seconds; a drawn one is cut to it."""
_NAME: Final = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"
_VALUE: Final = r"^[\t\x20-\x7e\u00a0-\u00ff]*$"
_OURS: Final = frozenset({"content-length", "transfer-encoding"})
_WITHOUT_BODY: Final = frozenset({204, 205, 304})
RETRY_AFTER_MAX_S: Final = 100 * 366 * 86_400

Seconds = Annotated[float, Field(ge=0, le=HELD_MAX_S, allow_inf_nan=False)]
Side = Literal["request", "answer"]
"""``request``: before the request is carried out, which it then is not. ``answer``: after it was carried out."""
HeaderValue = Annotated[str, StringConstraints(max_length=4000, pattern=_VALUE)]


class FaultTimes(Sent):
    """When a request that fits meets the effect: when all that is given holds; always when nothing is.

    Attributes:
        after: not the first so many requests that fit.
        next: so many times, then never again.
        probability: of each request, 0 to 1.
        seed: of what is drawn; one is made when it is left out, and the rule shows it.
    """

    after: Annotated[int, Field(ge=0, le=INT_MAX)] | None = None
    next: Annotated[int, Field(ge=1, le=INT_MAX)] | None = None
    probability: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, le=INT_MAX)] | None = None


class FaultLatency(Sent):
    """A time that is waited: fixed, or uniform between two.

    Attributes:
        of: ``answer``: the request is carried out at once and its answer held. ``request``: it is carried out after the
            time, and not at all when its caller leaves before.
    """

    fixed_s: Seconds | None = None
    min_s: Seconds | None = None
    max_s: Seconds | None = None
    of: Side = "answer"

    @model_validator(mode="after")
    def _is_one_distribution(self) -> Self:
        given = {name for name in ("fixed_s", "min_s", "max_s") if getattr(self, name) is not None}
        if given not in ({"fixed_s"}, {"min_s", "max_s"}):
            raise ValueError("give fixed_s; or min_s and max_s")
        if self.min_s is not None and self.max_s is not None and self.min_s > self.max_s:
            raise ValueError("min_s is larger than max_s")
        return self

    @property
    def is_drawn(self) -> bool:
        """Whether it differs from request to request."""
        return self.fixed_s is None


class FaultAnswer(Sent):
    """An answer instead of the service's; the request is not carried out.

    Attributes:
        headers: header -> value.
        body: text, or a JSON value; left out, a status of 400 or more has the error body ``injected_fault``.
        retry_after_s: the header ``Retry-After``, so many seconds from now.
    """

    status: Annotated[int, Field(ge=200, le=599)]
    headers: Annotated[
        dict[Annotated[str, StringConstraints(max_length=100, pattern=_NAME)], HeaderValue], Field(max_length=50)
    ] = Field(default_factory=dict)
    body: Any = None
    retry_after_s: Annotated[int, Field(ge=0, le=RETRY_AFTER_MAX_S)] | None = None

    @field_validator("headers")
    @classmethod
    def _check_length_kept(cls, headers: dict[str, str]) -> dict[str, str]:
        if wrong := [name for name in headers if name.lower() in _OURS]:
            raise ValueError(f"{wrong[0]} is made of the body: the effect truncate makes it a wrong one")
        return headers

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.body is not None and self.status in _WITHOUT_BODY:
            raise ValueError(f"an answer with the status {self.status} has no body")
        if self.retry_after_s is not None and any(name.lower() == "retry-after" for name in self.headers):
            raise ValueError("give retry_after_s or the header Retry-After, not both")
        return self


class FaultTruncate(Sent):
    """The answer's body ends too early; the request is carried out.

    Attributes:
        after_bytes: so many bytes of the body come, and at least one is missing; half of them when it is left out.
        end: ``close``: the connection is closed, ``Content-Length`` says that more would come. ``reset``: the same with
            a TCP RST. ``complete``: ``Content-Length`` fits what comes, so only the JSON text is cut.
    """

    after_bytes: Annotated[int, Field(ge=0, le=INT_MAX)] | None = None
    end: Literal["close", "reset", "complete"] = "close"


def _short(member: str, kind: Any, *, alone: bool = False) -> BeforeValidator:
    """A single value stands for an object of this one member; where ``alone``, ``true`` stands for an empty one.

    Args:
        member: ``fixed_s``: 0.5 means ``{"fixed_s": 0.5}``.
        kind: of all that may be given, for the JSON schema.
        alone: nothing has to be given.
    """

    def lengthen(value: Any) -> Any:
        if alone and value is True:
            return {}
        return {member: value} if isinstance(value, str | int | float) else value

    return BeforeValidator(lengthen, json_schema_input_type=kind)


class FaultEffect(Sent):
    """What happens: exactly one member. A number may stand for the member of an effect that is needed most.

    Attributes:
        latency: a time that is waited; rules after this one are asked as well.
        answer: an answer of your choice; the request is not carried out.
        lose: the connection is closed without an answer, and the ``request`` was not carried out, or was and the
            ``answer`` is lost.
        reset: as ``lose``, with a TCP RST.
        truncate: the body ends too early.
    """

    latency: Annotated[FaultLatency | None, _short("fixed_s", Seconds | FaultLatency | None)] = None
    answer: Annotated[FaultAnswer | None, _short("status", int | FaultAnswer | None)] = None
    lose: Side | None = None
    reset: Side | None = None
    truncate: Annotated[
        FaultTruncate | None, _short("after_bytes", int | Literal[True] | FaultTruncate | None, alone=True)
    ] = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        given = [name for name in EFFECTS if getattr(self, name) is not None]
        if not given:
            raise ValueError(f"give one effect: {', '.join(EFFECTS)}")
        if len(given) > 1:
            raise ValueError(f"gives {len(given)} effects, {' and '.join(given)}: a rule has one, so add two rules")
        return self

    @property
    def name(self) -> str:
        """Which effect it is."""
        return next(name for name in EFFECTS if getattr(self, name) is not None)

    @property
    def needs_body(self) -> bool:
        """Whether it is about the answer's body, which the answer to a HEAD has not."""
        return self.truncate is not None


EFFECTS: Final = tuple(FaultEffect.model_fields)
ALONE: Final = frozenset({"truncate"})
"""Effects that need nothing but their name: ``true`` as JSON."""


class NewFault(Sent):
    """``POST /_emulator/faults``: which requests, at which times, with which effect."""

    match: RequestMatch = RequestMatch()
    times: FaultTimes = FaultTimes()
    effect: FaultEffect


def find_contradictions(fault: NewFault) -> Sequence[tuple[str, str]]:
    """(field, issue) of members that would have no effect together with the others."""
    issues = []
    latency = fault.effect.latency
    draws = fault.times.probability is not None or (latency is not None and latency.is_drawn)
    if fault.times.seed is not None and not draws:
        issues.append(("times.seed", "has no effect: nothing is drawn without probability or a latency that varies"))
    if fault.effect.needs_body and (fault.match.method or "").upper() == "HEAD":
        issues.append((f"effect.{fault.effect.name}", "has no effect: the answer to a HEAD has no body"))
    return issues
