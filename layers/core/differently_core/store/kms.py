"""Sealing with KMS: each text is encrypted by itself under an encryption context, and the key never leaves KMS.

No error of botocore leaves this module: its texts may quote a request.
"""

from __future__ import annotations

import base64
import binascii
import threading
from typing import Any, Final

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from .dynamo import Credentials
from .sealing import Context, SealingUnavailable, Unsealable

CONNECT_SECONDS_MAX: Final = 1.0
READ_SECONDS_MAX: Final = 5.0
SENDS_MAX: Final = 3
_NEVER: Final = frozenset({"InvalidCiphertextException", "IncorrectKeyException"})


class KmsSealer:
    """`key` is the ARN of a symmetric key. Nothing is sent, and no file is read, before the first call."""

    def __init__(
        self, key: str, *, region: str, host: str | None = None, credentials: Credentials | None = None
    ) -> None:
        self._key = key
        self._region = region
        self._host = host
        self._credentials = credentials
        self._client: Any = None
        self._lock = threading.Lock()

    def seal(self, text: str, context: Context) -> str:
        answer = self._send("encrypt", KeyId=self._key, Plaintext=text.encode(), EncryptionContext=dict(context))
        return base64.b64encode(answer["CiphertextBlob"]).decode()

    def unseal(self, sealed: str, context: Context) -> str:
        try:
            blob = base64.b64decode(sealed, validate=True)
        except binascii.Error:
            raise _unsealable() from None
        answer = self._send("decrypt", KeyId=self._key, CiphertextBlob=blob, EncryptionContext=dict(context))
        return str(answer["Plaintext"].decode())

    def _send(self, operation: str, **request: object) -> Any:
        try:
            return getattr(self._connected(), operation)(**request)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
        except BotoCoreError as error:
            code = type(error).__name__
        # Raised out here, so that the text of botocore's error is in no chain of causes.
        raise _unsealable() if code in _NEVER else SealingUnavailable(f"The key of this installation: {code}.")

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                keys = self._credentials
                self._client = botocore.session.get_session().create_client(
                    "kms", region_name=self._region, endpoint_url=self._host,
                    aws_access_key_id=keys.key_id if keys is not None else None,
                    aws_secret_access_key=keys.secret if keys is not None else None,
                    config=Config(
                        connect_timeout=CONNECT_SECONDS_MAX, read_timeout=READ_SECONDS_MAX,
                        retries={"total_max_attempts": SENDS_MAX, "mode": "standard"},
                    ),
                )  # fmt: skip
            return self._client


def _unsealable() -> Unsealable:
    return Unsealable("A sealed secret does not open under its own name; set it again.")
