"""One call from a client to the backend: what befalls it, and what its caller hears."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from differently_core.contract import Operation, Target
from differently_core.errors import BackendError, ExecUnconfirmed, ProviderUnavailable

from .backend import FakeBackend
from .faults import Fault, LoseAnswer, LoseCall, Refuse, Slow, Vanish
from .ownership import all_of

CALL_SECONDS_MAX = 30.0
"""How long a call waits for an answer when its caller gave no deadline."""
COMMANDS = frozenset({Operation.EXEC, Operation.EXEC_STREAM})
PATIENT = frozenset(
    {Operation.STOP, Operation.START, Operation.PAUSE, Operation.RESUME, Operation.CALL_OFF, Operation.SNAPSHOT}
)
"""They wait by themselves for what they began."""
T = TypeVar("T")


class Calls:
    """A client's way to the backend, with its credential."""

    def __init__(self, backend: FakeBackend, token: str) -> None:
        self._backend = backend
        self._token = token

    def make(
        self,
        operation: Operation,
        target: Target | None,
        act: Callable[[Fault | None], T],
        deadline: float = CALL_SECONDS_MAX,
    ) -> T:
        fault = self.arrive(operation, target, deadline)
        result = act(fault)
        if isinstance(fault, LoseAnswer) or (isinstance(fault, Slow) and operation not in PATIENT):
            self._backend.clock.sleep(min(fault.seconds, deadline))
            if isinstance(fault, LoseAnswer) or fault.seconds > deadline:
                raise lost(operation)
        return result

    def arrive(self, operation: Operation, target: Target | None, deadline: float) -> Fault | None:
        """What befalls the call; the faults that end it before it has any effect are raised here."""
        backend = self._backend
        fault = backend.arrive(operation, target.owner if target else None, self._token)
        if backend.latency_seconds:
            backend.clock.sleep(backend.latency_seconds)
        match fault:
            case Refuse(error):
                raise error
            case LoseCall(seconds):
                backend.clock.sleep(min(seconds, deadline))
                raise lost(operation)
            case Vanish() if target is not None:
                for instance in all_of(backend, target):
                    backend.vanish(instance.ref)
            case _:
                pass
        return fault


def lost(operation: Operation) -> BackendError:
    if operation in COMMANDS:
        return ExecUnconfirmed("The backend did not tell how the command ended.")
    return ProviderUnavailable(f"The backend did not answer {operation}.")
