"""SigV4 for one service in one region, with the control plane's own credentials, a stored key, or a role's.

Nothing of botocore is imported before the first request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from differently_core.errors import ProviderUnavailable

from ..http import Call

CREDENTIAL_FIELDS: Final = ("access_key_id", "secret_access_key", "session_token")
SESSION_NAME: Final = "differently"
CONNECT_SECONDS: Final = 5
READ_SECONDS: Final = 10
_SIGNED: Final = ("Authorization", "X-Amz-Date", "X-Amz-Security-Token")


class Signer:
    """What `Http` takes as `sign`. `on_token` hears of every session token that goes out, so that none is told."""

    def __init__(
        self,
        service: str,
        region: str,
        credential: Mapping[str, str],
        *,
        role_arn: str | None = None,
        external_id: str | None = None,
        on_token: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._service = service
        self._region = region
        self._credential = credential
        self._role_arn = role_arn
        self._external_id = external_id
        self._on_token = on_token
        self._lock = threading.Lock()
        self._found: Any = None
        self._token: str | None = None

    def __call__(self, call: Call, url: str, headers: Mapping[str, str], content: bytes) -> Mapping[str, str]:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        keys = self._keys()
        request = AWSRequest(method=call.method, url=url, headers=dict(headers), data=content)
        SigV4Auth(keys, self._service, self._region).add_auth(request)
        return {name: request.headers[name] for name in _SIGNED if name in request.headers}

    def _keys(self) -> Any:
        """Key and token of one moment, renewed where they expire; raises `ProviderUnavailable` when there are none."""
        try:
            with self._lock:
                if self._found is None:
                    self._found = self._find()
                keys = self._found.get_frozen_credentials()
        except ProviderUnavailable:
            raise
        except Exception as error:  # botocore has many, and their texts may quote an answer
            name = type(error).__name__
        else:
            if keys.token and keys.token != self._token:
                self._token = keys.token
                self._on_token(keys.token)
            return keys
        raise ProviderUnavailable(f"The AWS credentials of this pool could not be had ({name}).", settled=True)

    def _find(self) -> Any:
        from botocore.credentials import AssumeRoleCredentialFetcher, Credentials, DeferredRefreshableCredentials
        from botocore.session import get_session

        session = get_session()
        given = [self._credential.get(name, "").strip() or None for name in CREDENTIAL_FIELDS]
        source = Credentials(*given) if given[0] else session.get_credentials()
        if source is None:
            raise ProviderUnavailable("There are no AWS credentials for this pool.", settled=True)
        if self._role_arn is None:
            return source
        asked = {"RoleSessionName": SESSION_NAME}
        if self._external_id is not None:
            asked["ExternalId"] = self._external_id
        fetcher = AssumeRoleCredentialFetcher(self._client_of(session), source, self._role_arn, extra_args=asked)
        return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")

    def _client_of(self, session: Any) -> Callable[..., Any]:
        from botocore.config import Config

        config = Config(
            connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS, retries={"total_max_attempts": 2}, proxies={}
        )
        return lambda service, **more: session.create_client(service, region_name=self._region, config=config, **more)
