"""Who calls. The authorizer proves a key once and API Gateway remembers the answer for a minute; handlers take the
caller from the event, check access and the key's end themselves, and read the key again where a revocation must act at
once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from differently_core.errors import Forbidden, Unauthenticated
from differently_core.model.due import stamp
from differently_core.model.tenancy import ApiKey, KeyScope
from differently_core.operations.core import Caller, Core
from differently_core.operations.keys import Peppers, caller_of, prove, usable
from differently_core.runtime.ids import KeyId, OrgId, ProjectId, is_id

from .failures import UNAUTHENTICATED
from .proxy import Event, Request
from .route import Access, AnyRoute, Group

log = logging.getLogger(__name__)
NOBODY = "anonymous"
TOKEN_MAX = 512


def authorize(core: Core, peppers: Peppers, event: Event) -> dict[str, Any]:
    """A policy for the whole stage, since it is remembered for every method and path that the key calls next.

    Raises `Exception("Unauthorized")`, the one text that API Gateway answers with 401, for whatever is wrong with a
    key. A store that fails raises its own error, which the gateway answers with 500.
    """
    try:
        key = prove(core, peppers, _token(event))
    except Unauthenticated as refusal:
        log.info("refused", extra={"keyId": refusal.details.get("keyId")})
        raise Exception("Unauthorized") from None
    return {
        "principalId": key.id,
        "policyDocument": {
            "Version": "2012-10-17",
            "Statement": [
                {"Action": "execute-api:Invoke", "Effect": "Allow", "Resource": _whole_stage(str(event["methodArn"]))}
            ],
        },
        "context": context_of(key),
    }


def context_of(key: ApiKey) -> dict[str, str]:
    """What the gateway hands to handlers. It can carry no null, so what a key does not have is left out.

    `expiresAt` goes along because the gateway remembers the key for longer than it may last.
    """
    facts = {
        "keyId": key.id, "scope": key.scope.value, "org": key.org, "project": key.project,
        "expiresAt": stamp(key.expires_at) if key.expires_at is not None else None,
    }  # fmt: skip
    return {name: value for name, value in facts.items() if value is not None}


def _token(event: Event) -> str:
    """The one key that was sent. Of two, which counts would depend on who reads them, so neither does."""
    headers: Mapping[str, Any] = event.get("headers") or {}
    several: Mapping[str, Any] = event.get("multiValueHeaders") or {}
    given = [str(value) for name, value in headers.items() if name.lower() == "authorization"]
    sent = [value for name, values in several.items() if name.lower() == "authorization" for value in values]
    if len(given) != 1 or len(sent) > 1:
        raise Unauthenticated(UNAUTHENTICATED)
    scheme, _, token = given[0].strip().partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token.isascii() or len(token) > TOKEN_MAX:
        raise Unauthenticated(UNAUTHENTICATED)
    return token


def _whole_stage(method_arn: str) -> str:
    """`arn:…:api-id/stage/GET/v1/…` -> `arn:…:api-id/stage/*`."""
    return "/".join([*method_arn.split("/")[:2], "*"])


def caller(core: Core, route: AnyRoute, request: Request) -> Caller:
    """The caller of a route, checked against what the route asks. Raises `Unauthenticated` or `Forbidden`."""
    if route.access is Access.PUBLIC:
        return Caller(actor=NOBODY, request_id=request.id)
    known = _claimed(request)
    ends = str(request.authorizer.get("expiresAt") or "")
    if ends and ends <= stamp(core.clock.now()):
        raise Unauthenticated("This API key has expired; use another one.", keyId=known.actor)
    if route.group is Group.ADMIN:
        known = caller_of(usable(core, KeyId(known.actor)), request.id)
    if route.access is Access.OPERATOR and not known.operator:
        raise Forbidden("This needs an operator's key.", scope=KeyScope.OPERATOR.value)
    return known


def _claimed(request: Request) -> Caller:
    """The caller as the authorizer told; anything short of a whole one is nobody."""
    told = request.authorizer
    key, scope, org, project = (str(told.get(name) or "") for name in ("keyId", "scope", "org", "project"))
    if is_id("key", key) and scope == KeyScope.OPERATOR:
        return Caller(actor=key, request_id=request.id, scope=KeyScope.OPERATOR)
    if is_id("key", key) and scope == KeyScope.TENANT and org and project:
        return Caller(
            actor=key, request_id=request.id, scope=KeyScope.TENANT, org=OrgId(org), project=ProjectId(project)
        )
    raise Unauthenticated(UNAUTHENTICATED)
