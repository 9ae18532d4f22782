"""``POST /enroll``: the one path of the front that needs no token, for devices that have a code."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from agent.errors import ConfigurationError, ServiceError
from agent.wire.enrollment import EnrollmentAnswer, EnrollmentRequest
from gateway.core.rate_limit import RateLimitByKey
from gateway.devices.invite_file import DeviceHasToken, EnrollmentRefused
from gateway.http.answers import Fault, HttpAnswer, later, ok
from gateway.http.requests import HttpRequest, check

_log = logging.getLogger(__name__)

REQUESTS_PER_ADDRESS: Final = 30
"""Requests of one address in a minute: a bench with a whole image's cards behind one router, and no guessing."""
REQUESTS: Final = 300
"""Requests of all addresses in a minute."""
AT_ONCE: Final = 4
"""Registrations under way; each waits for the service."""
_RETRY_S: Final = 5.0
_ALL: Final = "all addresses"

Enroll = Callable[[EnrollmentRequest], EnrollmentAnswer]


class Enrollment:
    """The endpoint at which a device enrolls.

    Args:
        enroll: see :meth:`gateway.devices.enrolling.Enroller.enroll`; called in a thread.
        monotonic: seconds on the monotonic clock.
    """

    def __init__(self, enroll: Enroll, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._enroll = enroll
        self._by_address = RateLimitByKey(REQUESTS_PER_ADDRESS, AT_ONCE, monotonic)
        self._together = RateLimitByKey(REQUESTS, AT_ONCE, monotonic)

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """201 with what the device is given.

        Raises:
            Fault: 400 for a body of another shape, 403 ``enrollment_refused``, 405, 409 ``device_has_token``, 429, 503.
        """
        if request.method != "POST":
            raise Fault(405, "method_not_allowed", "A device enrolls by POST.", headers=((b"allow", b"POST"),))
        # A place is taken once the body is there: slow connections of one address keep nobody out.
        asked = check(EnrollmentRequest, await request.json())
        with ExitStack() as held:
            # The address first: what it is refused takes nothing of what all have together.
            for limit, who in ((self._by_address, request.client), (self._together, _ALL)):
                wait_s = limit.begin(who)
                if wait_s:
                    text = "Too many tries to enroll; wait as Retry-After says."
                    raise later(429, "rate_limit_exceeded", text, wait_s)
                held.callback(limit.end, who)
            return await self._enrolled(asked, request.client)

    async def _enrolled(self, asked: EnrollmentRequest, address: str) -> HttpAnswer:
        try:
            given = await asyncio.to_thread(self._enroll, asked)
        except EnrollmentRefused as error:
            _log.warning("enroll=refused from %s: %s", address, error)
            raise Fault(403, "enrollment_refused", f"{error}.") from None
        except DeviceHasToken as error:
            _log.warning("enroll=refused from %s: %s", address, error)
            raise Fault(409, "device_has_token", f"{error}.") from None
        except ServiceError as error:
            _log.warning("enroll=failed from %s: the service: %s", address, error)
            text = f"The service did not register the device ({error}); the code is as good as before: try again."
            raise later(503, "service_unavailable", text, _RETRY_S) from None
        except (ConfigurationError, sqlite3.Error, OSError) as error:
            _log.error("enroll=failed from %s: %s", address, error)
            text = "The gateway could not store this; its log says why. The code is as good as before."
            raise later(503, "storage_unavailable", text, _RETRY_S) from None
        _log.info("enroll=done device=%s identifier=%s from %s", given.device_id, asked.device_identifier, address)
        members = {
            "device_id": given.device_id,
            "token": given.token.reveal(),
            "product_id": given.product_id,
            "url": given.url,
            "broker": given.broker,
            "plain": given.plain,
            "authority": given.authority,
        }
        return ok(members, status=201)
