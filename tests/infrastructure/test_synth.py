"""The synthesis as `make synth` and `cdk deploy` run it: clean now, and failing when it should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PLANTED = """
from aws_cdk import App, Stack, aws_s3
from differently_infra.nag import guard

app = App()
guard(app)
aws_s3.Bucket(Stack(app, "Planted"), "Bare")
app.synth()
"""


def synthesize(outdir: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "CDK_OUTDIR": str(outdir)},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_the_application_synthesizes_without_a_finding(tmp_path: Path) -> None:
    done = synthesize(tmp_path, "-m", "differently_infra.app")

    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "Differently-Data.template.json").is_file()


def test_a_finding_fails_the_synthesis_and_is_named(tmp_path: Path) -> None:
    done = synthesize(tmp_path, "-c", PLANTED)

    assert done.returncode != 0
    assert "AwsSolutions-S1" in done.stdout + done.stderr
