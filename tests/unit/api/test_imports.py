"""What the handlers load by themselves: each cold start pays for it, and the tests of every operation do."""

from __future__ import annotations

import subprocess
import sys


def test_the_handlers_load_no_client_of_aws() -> None:
    """The archive of roots and its client shared a module, so everything loaded botocore: half as long again."""
    probe = (
        "import sys, differently_api.app; "
        "print([m for m in sys.modules if m.split('.')[0] in ('botocore', 'boto3', 'pynamodb', 'httpx', 'typer')])"
    )
    ran = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
