"""``/_emulator/faults``: making the service fail on purpose."""

from __future__ import annotations

from typing import Final

from pydantic_core import to_json

from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.answers import NO_CONTENT, Answer, ok
from simulator.service.call import Call
from simulator.service.endpoints import ERROR, Endpoint, Reply
from simulator.service.errors import invalid_all
from simulator.service.faults.model import NewFault, find_contradictions
from simulator.service.faults.rules import RULES_MAX
from simulator.service.records import FaultListRecord, FaultRecord
from simulator.service.request_matches import find_matcher

_TAG: Final = "control"
_PATH: Final = f"{CONTROL_PREFIX}faults"
_ONE: Final = f"{_PATH}/{{fault_id}}"


async def list_faults(call: Call) -> Answer:
    """All faults, in the order in which they are asked."""
    return ok({"data": [rule.show() for rule in call.service.faults.all()]})


async def add_fault(call: Call) -> Answer:
    """A fault that is asked after those that are there."""
    wanted = await call.message(NewFault)
    if issues := find_contradictions(wanted):
        raise invalid_all(issues)
    service = call.service
    matcher = await find_matcher(service, wanted.match)
    rule = service.faults.add(wanted, matcher, service.clock.now_ms())
    return Answer(201, to_json(rule.show()), ((b"location", f"{_PATH}/{rule.fault_id}".encode()),))


async def show_fault(call: Call) -> Answer:
    """One fault, with how often it was met."""
    return ok(call.service.faults.find(call.path("fault_id")).show())


async def remove_fault(call: Call) -> Answer:
    """Delete one fault."""
    call.service.faults.remove(call.path("fault_id"))
    return NO_CONTENT


async def remove_faults(call: Call) -> Answer:
    """Delete all faults; requests that are held go on."""
    call.service.faults.clear()
    return NO_CONTENT


_SHOWN: Final = Reply(200, "The fault, with `matched` and `hits`", FaultRecord)
_NONE: Final = Reply(404, "`fault_not_found`", ERROR)

ENDPOINTS: Final = (
    Endpoint(
        "GET",
        _PATH,
        list_faults,
        "list_faults",
        "All faults, in the order in which they are asked",
        _TAG,
        (Reply(200, "All of them", FaultListRecord),),
        public=True,
    ),
    Endpoint(
        "POST",
        _PATH,
        add_fault,
        "add_fault",
        "Make requests meet a fault: which ones, at which times, with which effect",
        _TAG,
        (
            Reply(201, "The fault", FaultRecord, located=True),
            Reply(400, "What is wrong, or names nothing that exists", ERROR),
            Reply(409, f"`fault_limit_reached`: there are {RULES_MAX}", ERROR),
        ),
        body=(NewFault,),
        public=True,
    ),
    Endpoint(
        "DELETE", _PATH, remove_faults, "remove_faults", "Delete all faults", _TAG, (Reply(204, "Done"),), public=True
    ),
    Endpoint("GET", _ONE, show_fault, "show_fault", "One fault", _TAG, (_SHOWN, _NONE), public=True),
    Endpoint(
        "DELETE", _ONE, remove_fault, "remove_fault", "Delete a fault", _TAG, (Reply(204, "Done"), _NONE), public=True
    ),
)
