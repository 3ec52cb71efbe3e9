"""What of the caller's environment may reach AWS clients in this process: nothing.

A profile, a region, an endpoint or real credentials in the shell must not change where calls go.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

LOOPBACK_NAMES = "127.0.0.1,localhost,::1"


def isolate(environ: MutableMapping[str, str]) -> None:
    """Call before the first AWS client is made."""
    for name in [name for name in environ if name.startswith("AWS_") or name == "BOTO_CONFIG"]:
        del environ[name]
    environ["AWS_CONFIG_FILE"] = os.devnull
    environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull
    environ["AWS_EC2_METADATA_DISABLED"] = "true"
    # A proxy stays in use for what is outside; the embedded AWS is never asked through one.
    for name in ("NO_PROXY", "no_proxy"):
        environ[name] = ",".join(filter(None, (environ.get(name), LOOPBACK_NAMES)))
