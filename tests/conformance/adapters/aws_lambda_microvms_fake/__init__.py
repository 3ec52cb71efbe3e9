"""A stand-in for the Lambda MicroVM API and for MicroVMs with an agent inside: real sockets, real commands.

Requests are held against AWS's own service model and their signature against a key, both by botocore, so that what the
adapter sends is what AWS would take as far as the model says; another test drives it with AWS's own client. How
MicroVMs behave beyond the model (states that lag behind, tokens, errors by code) is as documented, never seen live.
"""

from __future__ import annotations

from .server import KEY, REGION, FakeMicrovms, Vm

__all__ = ["KEY", "REGION", "FakeMicrovms", "Vm"]
