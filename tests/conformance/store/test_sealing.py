"""Both sealers: what is sealed opens under its own context alone, and no refusal quotes anything."""

from __future__ import annotations

import base64
import traceback

import pytest

from differently_core.store.dynamo import Credentials
from differently_core.store.kms import KmsSealer
from differently_core.store.sealing import MemorySealer, NoSealer, Sealer, SealingUnavailable, Unsealable
from tests.support.emulator import Emulator

CANARY = "canary-sealed-4b1c"
CONTEXT = {"installation": "inst_1", "secret": "eu", "field": "api_key", "revision": "rev_1"}


def kms(emulator: Emulator, key: str | None = None) -> KmsSealer:
    return KmsSealer(
        key or emulator.secrets_key(), region=emulator.region, host=emulator.url,
        credentials=Credentials(emulator.key_id, emulator.secret),
    )  # fmt: skip


@pytest.fixture(params=["memory", "kms"])
def sealer(request: pytest.FixtureRequest) -> Sealer:
    return MemorySealer() if request.param == "memory" else kms(request.getfixturevalue("emulator"))


def told(error: BaseException) -> str:
    """All that a log or a debugger could show of it, with its causes."""
    return "".join(traceback.format_exception(error)) + repr(error.__context__) + repr(vars(error))


@pytest.mark.parametrize("text", [CANARY, "é\n-----BEGIN KEY-----\n", "x" * 4096])
def test_what_is_sealed_opens_again(sealer: Sealer, text: str) -> None:
    sealed = sealer.seal(text, CONTEXT)

    assert text not in sealed
    assert base64.b64encode(text.encode()).decode() not in sealed
    assert sealer.unseal(sealed, CONTEXT) == text


@pytest.mark.parametrize("field", list(CONTEXT))
def test_it_opens_under_no_other_context(sealer: Sealer, field: str) -> None:
    sealed = sealer.seal(CANARY, CONTEXT)

    for other in ({**CONTEXT, field: "another"}, {name: text for name, text in CONTEXT.items() if name != field}):
        with pytest.raises(Unsealable) as refusal:
            sealer.unseal(sealed, other)
        assert CANARY not in told(refusal.value)


@pytest.mark.parametrize("sealed", ["", "nonsense", "bm9uc2Vuc2U=", "%%%"])
def test_what_was_never_sealed_does_not_open(sealer: Sealer, sealed: str) -> None:
    with pytest.raises((Unsealable, SealingUnavailable)):
        sealer.unseal(sealed, CONTEXT)


def test_a_key_that_is_gone_and_a_server_that_is_silent_are_unavailable(emulator: Emulator) -> None:
    """Neither says that the secret is lost; both come without a word of botocore's, which may quote the request."""
    gone = kms(emulator, "arn:aws:kms:us-east-1:000000000000:key/00000000-0000-0000-0000-000000000000")
    nobody = KmsSealer("key", region="us-east-1", host="http://127.0.0.1:9", credentials=Credentials("a", "b"))
    for sealer in (gone, nobody, NoSealer()):
        with pytest.raises(SealingUnavailable) as refusal:
            sealer.seal(CANARY, CONTEXT)
        assert CANARY not in told(refusal.value)
        assert base64.b64encode(CANARY.encode()).decode() not in told(refusal.value)


def test_what_botocore_refuses_to_send_is_not_quoted(emulator: Emulator) -> None:
    """botocore's own check of parameters puts the value into its message."""
    with pytest.raises(SealingUnavailable) as refusal:
        kms(emulator).seal(CANARY, {"field": CANARY.encode()})  # type: ignore[dict-item]
    assert CANARY not in told(refusal.value)


def test_a_memory_sealer_can_be_down() -> None:
    sealer = MemorySealer()
    sealed = sealer.seal(CANARY, CONTEXT)
    sealer.up = False
    with pytest.raises(SealingUnavailable):
        sealer.unseal(sealed, CONTEXT)
