"""Credentials that AWS keeps: read by ARN, told apart when they are gone, and quoted in no error."""

from __future__ import annotations

import pytest

from differently_core.contract import CredentialGone, Vaulted
from differently_core.errors import ProviderUnavailable
from differently_core.store.dynamo import Credentials
from differently_core.store.vaults import AwsVaults
from tests.support.emulator import Emulator


@pytest.fixture
def vaults(emulator: Emulator) -> AwsVaults:
    return AwsVaults(host=emulator.url, credentials=Credentials(emulator.key_id, emulator.secret))


def secret(emulator: Emulator, arn: str) -> Vaulted:
    return Vaulted(arn, "secretsmanager", emulator.region)


def parameter(emulator: Emulator, name: str) -> Vaulted:
    return Vaulted(f"arn:aws:ssm:{emulator.region}:000000000000:parameter{name}", "ssm", emulator.region)


def test_a_secret_is_read_and_its_version_tells_of_a_rotation(emulator: Emulator, vaults: AwsVaults) -> None:
    client = emulator.client("secretsmanager")
    arn = client.create_secret(Name="pools/read", SecretString='{"token": "first", "user": "u"}')["ARN"]
    first = vaults.read(secret(emulator, arn))
    assert first.fields == {"token": "first", "user": "u"}
    assert vaults.read(secret(emulator, arn)) == first

    client.put_secret_value(SecretId=arn, SecretString="second\n")
    second = vaults.read(secret(emulator, arn))
    assert (dict(second.fields), second.version != first.version) == ({"": "second"}, True)
    assert "second" not in repr(second)


def test_a_parameter_is_read_decrypted(emulator: Emulator, vaults: AwsVaults) -> None:
    client = emulator.client("ssm")
    client.put_parameter(Name="/pools/read", Value="first", Type="SecureString")
    first = vaults.read(parameter(emulator, "/pools/read"))
    client.put_parameter(Name="/pools/read", Value="second", Type="SecureString", Overwrite=True)
    second = vaults.read(parameter(emulator, "/pools/read"))
    assert (dict(first.fields), dict(second.fields)) == ({"": "first"}, {"": "second"})
    assert first.version != second.version


def test_what_does_not_exist_is_gone_and_what_does_not_answer_is_not(emulator: Emulator, vaults: AwsVaults) -> None:
    """features.md 2 #78"""
    with pytest.raises(CredentialGone):
        vaults.read(secret(emulator, f"arn:aws:secretsmanager:{emulator.region}:000000000000:secret:none-AbCdEf"))
    with pytest.raises(CredentialGone):
        vaults.read(parameter(emulator, "/none"))
    silent = AwsVaults(host="http://127.0.0.1:9", credentials=Credentials("a", "b"))
    with pytest.raises(ProviderUnavailable) as refusal:
        silent.read(parameter(emulator, "/none"))
    assert not isinstance(refusal.value, CredentialGone)
    assert refusal.value.settled
