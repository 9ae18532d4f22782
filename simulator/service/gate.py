"""The outer ASGI layer: checks keys and quota, gives each request an id, and turns every error into a body.

Order of checks: authenticate, then quota, then route and validate. A missing key is 401 on an unknown path too.
"""

from __future__ import annotations

import hmac
import itertools
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp, Receive, Scope, Send

from simulator.service.addresses import CONTROL_PREFIX, HEALTH, PUBLIC
from simulator.service.answers import Header, send_answer
from simulator.service.browser_access import ACCOUNT_HEADER, SESSION_HEADER, BrowserAccess
from simulator.service.clock import SettableClock
from simulator.service.control_access import ControlAccess, is_local
from simulator.service.core.client import hash_secret
from simulator.service.epochs import Epochs
from simulator.service.errors import ServiceError
from simulator.service.failure_log import FailureLog
from simulator.service.http_errors import HttpError, http_error_of
from simulator.service.ids import IdSource
from simulator.service.quota import Limit, Quota, QuotaState
from simulator.service.request_log.recording import RECORDING, Recording
from simulator.service.storage.keys import Caller

log = logging.getLogger(__name__)

CALLER: Final = "service.caller"
RESPONSE_HEADERS: Final = "service.headers"
"""What every answer of this request carries."""
EPOCH: Final = "service.epoch"
"""The number of :class:`simulator.service.epochs.Epochs` when the request came."""
REQUEST_HEADERS: Final = "service.given"
"""The request's own headers by name."""
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
KEY_CHALLENGE: Final[Header] = (b"www-authenticate", b'ApiKey realm="device-service"')
_TOKEN_CHALLENGE: Final[Header] = (b"www-authenticate", b'Bearer realm="device-service", error="invalid_token"')


class Gate:
    """Lets requests through to ``app`` and turns what it raises into answers.

    Args:
        callers: key -> whose it is; the service adds to it while it runs.
        find_bearer: access token -> whom it speaks for; None when it is unknown or over.
        quota: of the keys of all accounts.
        control: whether ``/_emulator/...`` exists.
        access: who may use it.
        epochs: what has changed while requests are under way.
        browser: who may come with the session of a page; None where there are no such pages.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        callers: dict[bytes, Caller],
        find_bearer: Callable[[str], Awaitable[Caller | None]],
        quota: Quota,
        clock: SettableClock,
        ids: IdSource,
        control: bool,
        access: ControlAccess,
        epochs: Epochs,
        browser: BrowserAccess | None = None,
    ) -> None:
        self._app = app
        self._callers = callers
        self._find_bearer = find_bearer
        self._quota = quota
        self._clock = clock
        self._started = ids.next()[:18].encode()  # differs with each start of the service
        self._numbers = itertools.count(1)
        self._control = control
        self._access = access
        self._epochs = epochs
        self._browser = browser
        self._failure_log = FailureLog(log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's start and end."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: list[Header] = []
        scope[RESPONSE_HEADERS] = headers
        try:
            await self._admit(scope, headers)
            await self._app(scope, receive, send)
        except ServiceError as exc:
            await send_answer(send, http_error_of(exc).answer(), headers)
        except SQLAlchemyError as exc:
            self._failure_log.report("the storage could not be read", exc)
            fault = HttpError(503, "storage_unavailable", "The service could not read its storage; its log says why.")
            await send_answer(send, fault.answer(), headers)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            fault = HttpError(500, "internal_error", "The service failed on this request; its log says why.")
            await send_answer(send, fault.answer(), headers)

    async def _admit(self, scope: Scope, headers: list[Header]) -> None:
        # Of a header that comes twice the last one counts.
        scope[REQUEST_HEADERS] = given = dict(scope["headers"])
        request_id = given.get(b"x-request-id")
        if request_id is None or _REQUEST_ID.fullmatch(request_id) is None:
            request_id = b"%s-%x" % (self._started, next(self._numbers))
        headers.append((b"x-request-id", request_id))
        recording: Recording | None = scope.get(RECORDING)
        if recording is not None:
            recording.request_id = request_id
        raw_path: bytes = scope["raw_path"]
        if b"%" in raw_path:
            # Routes match the path as it was sent and decode each segment by itself: an id may hold an encoded slash.
            scope["path"] = raw_path.decode("ascii", "replace")
        path: str = scope["path"]
        if self._epochs.settled is not None and path != HEALTH:
            await self._epochs.wait()
        scope[EPOCH] = self._epochs.number
        if path in PUBLIC or self._is_from_console(scope, given, path):
            return
        if self._control and path.startswith(CONTROL_PREFIX) and is_local(scope):
            self._access.check(scope, given)
            return
        scope[CALLER] = caller = await self._authenticate(given)
        if recording is not None:
            recording.caller = caller
        if not self._access.is_observer(scope):
            self._count(caller, headers)
        if path.startswith(CONTROL_PREFIX):
            raise HttpError(404, "not_found", "The control paths are off, or open to callers on this machine only.")

    def _is_from_console(self, scope: Scope, given: Mapping[bytes, bytes], path: str) -> bool:
        """Whether a page of the service may have what it wants, without keys.

        Raises:
            HttpError: it may not.
        """
        browser = self._browser
        if browser is None:
            return False
        if SESSION_HEADER in given:
            browser.check(scope, given)
            self._admit_session(scope, given)
            return True
        return browser.has_page(path) or (path.startswith(CONTROL_PREFIX) and browser.may_read(scope, given))

    def _admit_session(self, scope: Scope, given: Mapping[bytes, bytes]) -> None:
        """A page's request is the account's that it names, and counts for no quota; a control path needs none."""
        api_key = given.get(ACCOUNT_HEADER)
        if api_key is None:
            if not scope["path"].startswith(("/console/", CONTROL_PREFIX)):
                raise HttpError(400, "account_missing", "Send X-Console-Account with a public key of the account.")
            return
        caller = self._callers.get(api_key)
        if caller is None:
            raise HttpError(404, "account_not_found", "X-Console-Account is the public key of no account.")
        scope[CALLER] = caller
        recording: Recording | None = scope.get(RECORDING)
        if recording is not None:
            recording.caller = caller

    def _count(self, caller: Caller, headers: list[Header]) -> None:
        limit = self._quota.limit_of(caller.manufacturer_seq)
        if limit is None:
            return
        state = self._quota.count(caller.api_key, self._clock.quota_ms(), limit)
        headers.extend(state.headers)
        if state.exceeded:
            raise _too_many(limit, state)

    async def _authenticate(self, given: Mapping[bytes, bytes]) -> Caller:
        """Both keys win over a token; one of them alone is a mistake that no token covers up."""
        api_key, secret_key = given.get(b"x-api-key"), given.get(b"x-secret-key")
        authorization = given.get(b"authorization")
        if api_key is None and secret_key is None and authorization is not None:
            token = bearer_of(authorization)
            if token is not None:
                return await self._of_token(token)
        if not api_key or not secret_key:
            raise HttpError(
                401,
                "missing_credentials",
                "Both headers x-api-key and x-secret-key are required.",
                headers=(KEY_CHALLENGE,),
            )
        caller = self._callers.get(api_key)
        # A header value is bytes; latin-1 gives each of them a character, so any value can be hashed.
        offered = hash_secret(secret_key.decode("latin-1"))
        if caller is None or not hmac.compare_digest(caller.secret_hash, offered):
            raise wrong_keys()
        return caller

    async def _of_token(self, token: str) -> Caller:
        caller = await self._find_bearer(token)
        if caller is None:
            raise wrong_token()
        return caller


def wrong_keys() -> HttpError:
    """No account has this pair of keys."""
    text = "There is no account with this pair of x-api-key and x-secret-key."
    return HttpError(401, "invalid_credentials", text, headers=(KEY_CHALLENGE,))


def wrong_token() -> HttpError:
    """The token is good for nothing."""
    text = "The access token is expired, revoked or unknown."
    return HttpError(401, "invalid_token", text, headers=(_TOKEN_CHALLENGE,))


def bearer_of(authorization: bytes) -> str | None:
    """The token of an ``Authorization`` header with the scheme ``Bearer``."""
    scheme, _, token = authorization.decode("latin-1").partition(" ")
    return token.strip(" ") if scheme.lower() == "bearer" else None


def _too_many(limit: Limit, state: QuotaState) -> HttpError:
    return HttpError(
        429,
        "rate_limit_exceeded",
        f"More than {limit.per_minute} requests in this minute; go on in {state.reset_s} s.",
        headers=((b"retry-after", b"%d" % state.reset_s),),
    )
