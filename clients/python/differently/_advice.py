"""What to do next, by code: messages say what was wrong here, these say what helps in general."""

from __future__ import annotations

ADVICE = {
    "invalid_request": "Correct the field that the message names; nothing was done.",
    "payload_too_large": "Send or read less at once; the message names the limit.",
    "method_not_allowed": "This server may be older or newer than this client: compare `differently version`.",
    "rate_limited": "Send fewer requests at once; repeats after a pause are safe.",
    "unauthenticated": "Give a valid key: `differently login`, or set DIFFERENTLY_API_KEY.",
    "forbidden": "Use a key with the scope for it; this one is valid but does not have it.",
    "suspended": "Ask your operator: the organization or project takes nothing new. What runs can still be used.",
    "not_found": "Check what the message names, and that the key belongs to the same project.",
    "invalid_state": "The message tells what stands in the way: change that, or wait until it is over, and repeat.",
    "idempotency_conflict": "Use another idempotency key, or the same body as the first time.",
    "budget_exceeded": "Ask your operator, or wait for the next month: `differently budget get` tells what is spent.",
    "unsupported_capability": "Ask which pool offers what: `differently explain` with the same options.",
    "no_eligible_pool": "See why each pool refuses: `differently explain` with the same options.",
    "limit_exceeded": "Ask for less, or ask your operator for a larger limit; the message names it.",
    "quota_exceeded": "End a sandbox that is not needed, wait for one to end, or let this one wait in the queue.",
    "queue_full": "Wait until some of what waits has started: `differently queue`.",
    "unsupported_operation": "This pool cannot do it at all; `differently capabilities` tells which one can.",
    "provider_unavailable": "Try again in a moment; an operator sees the pool's health in `differently pool list`.",
    "exec_unconfirmed": "Look at what the command did before you run it again; it was not repeated.",
    "internal": "Tell your operator the request id: it finds the call in the logs.",
}
