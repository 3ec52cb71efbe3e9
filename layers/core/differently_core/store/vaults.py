"""Credentials that AWS keeps: secrets of Secrets Manager and parameters of SSM, by their ARN.

No error of botocore leaves this module: its texts may quote an answer.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ..contract import Credential, CredentialGone, Vaulted, text_fields
from ..errors import ProviderUnavailable
from .dynamo import Credentials

CONNECT_SECONDS_MAX: Final = 1.0
READ_SECONDS_MAX: Final = 5.0
SENDS_MAX: Final = 2
_GONE: Final = frozenset({"ResourceNotFoundException", "ParameterNotFound"})


class AwsVaults:
    """Reads with the process's own role, which says what may be read. Nothing is sent before the first call."""

    def __init__(self, *, host: str | None = None, credentials: Credentials | None = None) -> None:
        self._host = host
        self._credentials = credentials
        self._clients: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()

    def read(self, vaulted: Vaulted) -> Credential:
        """Raises `CredentialGone` for one that does not exist, `ProviderUnavailable` for one that cannot be read."""
        code = ""
        try:
            version, text = self._ask(vaulted)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", "ClientError"))
        except BotoCoreError as error:
            code = type(error).__name__
        if code in _GONE:
            raise CredentialGone(f"The pool's credential does not exist: {vaulted.arn}.", settled=True)
        if code:
            raise ProviderUnavailable(f"The pool's credential {vaulted.arn} cannot be read: {code}.", settled=True)
        return Credential(version, text_fields(text))

    def _ask(self, vaulted: Vaulted) -> tuple[str, str]:
        client = self._client(vaulted)
        if vaulted.service == "secretsmanager":
            answer = client.get_secret_value(SecretId=vaulted.arn)
            return str(answer["VersionId"]), str(answer.get("SecretString") or answer["SecretBinary"].decode())
        parameter = client.get_parameter(Name=vaulted.arn, WithDecryption=True)["Parameter"]
        return str(parameter["Version"]), str(parameter["Value"])

    def _client(self, vaulted: Vaulted) -> Any:
        place = (vaulted.service, vaulted.region)
        with self._lock:
            if place not in self._clients:
                keys = self._credentials
                self._clients[place] = botocore.session.get_session().create_client(
                    vaulted.service, region_name=vaulted.region, endpoint_url=self._host,
                    aws_access_key_id=keys.key_id if keys is not None else None,
                    aws_secret_access_key=keys.secret if keys is not None else None,
                    config=Config(
                        connect_timeout=CONNECT_SECONDS_MAX, read_timeout=READ_SECONDS_MAX,
                        retries={"total_max_attempts": SENDS_MAX, "mode": "standard"},
                    ),
                )  # fmt: skip
            return self._clients[place]
