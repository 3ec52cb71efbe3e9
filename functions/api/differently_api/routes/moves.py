"""Moves: stop and start a sandbox, which keeps its disk; pause and resume one, which keeps its memory too.

Served by the function that reaches backends: whether a pool offers a move is its adapter's to say.
"""

from __future__ import annotations

from differently_core.errors import (
    BudgetExceeded,
    InsufficientCapacity,
    InvalidState,
    ProviderUnavailable,
    QueueFull,
    QuotaExceeded,
    Suspended,
    UnsupportedOperation,
)
from differently_core.model.sandbox import WAYS, MoveKind, Sandbox, Status
from differently_core.operations import moves, sandboxes, use
from differently_core.operations.requests import SandboxView

from ..failures import JSON
from ..route import Access, Answer, Call, Group, Method, NoBody, NoQuery, Route

REST_ERRORS = (InvalidState, UnsupportedOperation, QuotaExceeded)
WAKE_ERRORS = (*REST_ERRORS, Suspended, BudgetExceeded, QueueFull, InsufficientCapacity)
KEEP_ERRORS = (
    InvalidState, ProviderUnavailable, Suspended, BudgetExceeded, QuotaExceeded, QueueFull, InsufficientCapacity,
)  # fmt: skip
NEVER = " 501 where its pool cannot do that at all."


def stop_sandbox(call: Call[NoBody, NoQuery]) -> Answer:
    return _ask(call, MoveKind.STOP)


def start_sandbox(call: Call[NoBody, NoQuery]) -> Answer:
    return _ask(call, MoveKind.START)


def pause_sandbox(call: Call[NoBody, NoQuery]) -> Answer:
    return _ask(call, MoveKind.PAUSE)


def resume_sandbox(call: Call[NoBody, NoQuery]) -> Answer:
    return _ask(call, MoveKind.RESUME)


def keep_alive(call: Call[NoBody, NoQuery]) -> Answer:
    kept = use.keep_alive(call.core, call.caller, call.params["id"])
    return _answer(call, kept, 200 if kept.status is Status.RUNNING else 202)


def _ask(call: Call[NoBody, NoQuery], kind: MoveKind) -> Answer:
    moved = moves.ask(call.core, call.caller, call.params["id"], kind)
    return _answer(call, moved, 200 if moved.status is WAYS[kind].after else 202)


def _answer(call: Call[NoBody, NoQuery], sandbox: Sandbox, status: int) -> Answer:
    body = sandboxes.view(call.caller, sandbox).model_dump_json(by_alias=True, exclude_none=True)
    facts: dict[str, str | int | bool] = {"sandboxId": sandbox.id, "status": sandbox.status.value}
    return Answer(status, body, {"Content-Type": JSON}, facts)


ROUTES = (
    Route(
        Method.POST, "/v1/sandboxes/{id}/stop", Group.DATA, Access.TENANT, stop_sandbox,
        "Stop a sandbox", NoBody, NoQuery, SandboxView, 202, also=(200,), errors=REST_ERRORS,
        description="Keeps the disk and ends what runs. 202 while it is `stopping`, 200 when it is stopped already. A "
        "stopped sandbox counts against no concurrency quota; its time to live goes on." + NEVER,
    ),
    Route(
        Method.POST, "/v1/sandboxes/{id}/start", Group.DATA, Access.TENANT, start_sandbox,
        "Start a stopped sandbox", NoBody, NoQuery, SandboxView, 202, also=(200,), errors=WAKE_ERRORS,
        description="It is admitted like a new one: `starting` when there is room in its organization, its project and "
        "its pool, else `queued` until there is. 200 when it runs already." + NEVER,
    ),
    Route(
        Method.POST, "/v1/sandboxes/{id}/pause", Group.DATA, Access.TENANT, pause_sandbox,
        "Pause a sandbox", NoBody, NoQuery, SandboxView, 202, also=(200,), errors=REST_ERRORS,
        description="Keeps memory and disk. While it is `pausing`, which may take minutes, commands, files and ports "
        "answer 409; a pause that fails leaves it `running` with the reason. A paused sandbox counts against no "
        "concurrency quota; its time to live goes on." + NEVER,
    ),
    Route(
        Method.POST, "/v1/sandboxes/{id}/resume", Group.DATA, Access.TENANT, resume_sandbox,
        "Resume a paused sandbox", NoBody, NoQuery, SandboxView, 202, also=(200,), errors=WAKE_ERRORS,
        description="Goes on where it was paused. It is admitted like a new one: `resuming` when there is room, else "
        "`queued` until there is. 200 when it runs already." + NEVER,
    ),
    Route(
        Method.POST, "/v1/sandboxes/{id}/keepalive", Group.DATA, Access.TENANT, keep_alive,
        "Count as use", NoBody, NoQuery, SandboxView, 200, also=(202,), errors=KEEP_ERRORS,
        description="For use that is not seen here, such as a viewer on an open port. 200 while it runs, 202 for one "
        "that was put to rest for not being used and is being woken.",
    ),
)  # fmt: skip
