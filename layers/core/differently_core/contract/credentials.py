"""The credential of a pool: what it may be called, and what comes out when it is read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from ..errors import InvalidRequest, ProviderUnavailable
from ..model.pool import Pool
from ..model.secret import SECRET_NAME_PATTERN, STORED

ENVIRONMENT_PREFIX: Final = "DIFFERENTLY_CREDENTIAL_"
"""Only such variables: a pool must never be able to send the process's own keys to its endpoint."""
WHOLE: Final = ""
"""The name under which a credential that is one text, without names, stands among the fields."""
_SECRET: Final = re.compile(rf"{STORED}({SECRET_NAME_PATTERN[1:-1]})")
_ENVIRONMENT: Final = re.compile(rf"env:({ENVIRONMENT_PREFIX}[A-Z0-9_]{{1,64}})")
_ARN: Final = re.compile(
    r"arn:aws[a-z-]*:(secretsmanager|ssm):([a-z0-9-]{1,32}):[0-9]{12}:(?:secret:|parameter/)[A-Za-z0-9/_+=.@-]{1,512}"
)


@dataclass(frozen=True)
class StoredSecret:
    name: str


@dataclass(frozen=True)
class EnvironmentVariable:
    name: str


@dataclass(frozen=True)
class Vaulted:
    """An ARN of Secrets Manager or of the Parameter Store of SSM."""

    arn: str
    service: str
    region: str


Reference = StoredSecret | EnvironmentVariable | Vaulted


def parse_reference(text: str) -> Reference:
    """Raises `InvalidRequest`, without the text: it may be the credential itself."""
    if found := _SECRET.fullmatch(text):
        return StoredSecret(found[1])
    if found := _ENVIRONMENT.fullmatch(text):
        return EnvironmentVariable(found[1])
    if found := _ARN.fullmatch(text):
        return Vaulted(text, found[1], found[2])
    raise InvalidRequest(
        "credential refers to a credential and never holds one: secret:NAME for a stored one, "
        f"env:{ENVIRONMENT_PREFIX}NAME for a variable of the control plane, or the ARN of a secret of Secrets Manager "
        "or a parameter of SSM.",
        field="credential",
    )


@dataclass(frozen=True)
class Credential:
    """`version` tells one value from the next and says nothing of it."""

    version: str
    fields: Mapping[str, str] = field(repr=False)


class CredentialGone(ProviderUnavailable):
    """The credential does not exist any more: its pool cannot be used. Not for one that cannot be read just now."""


class Credentials(Protocol):
    def read(self, pool: Pool) -> Credential:
        """What the pool's credential holds now. Raises `CredentialGone`, or another error when it cannot be read."""
        ...


def text_fields(text: str) -> Mapping[str, str]:
    """A credential that is kept elsewhere as one text: a JSON object of texts, or the only field's value."""
    try:
        found = json.loads(text)
    except ValueError:
        return {WHOLE: text.rstrip("\r\n")}
    if isinstance(found, dict) and all(isinstance(value, str) for value in found.values()):
        return dict(found)
    return {WHOLE: text.rstrip("\r\n")}
