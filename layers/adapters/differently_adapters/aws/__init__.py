"""AWS services over the shared HTTP layer: requests signed with SigV4, and errors told by their code.

The signature and the search for credentials are botocore's, which ships with the control plane. Its HTTP client is not
used: calls would be repeated by themselves, answers unbounded, and a private address reachable by a pool's endpoint.
"""

from __future__ import annotations

from .refusals import code_of, refusal
from .signing import Signer

__all__ = ["Signer", "code_of", "refusal"]
