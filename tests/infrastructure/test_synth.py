"""The synthesis as `cdk deploy` runs it: whole, and failing when it should. `make synth` checks what ships."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from differently_infra.packaging import FUNCTIONS

PLANTED = """
from aws_cdk import App, Stack, aws_s3
from differently_infra.nag import guard

app = App()
guard(app)
aws_s3.Bucket(Stack(app, "Planted"), "Bare")
app.synth()
"""
STACKS = ("Api", "Data", "Observability", "Secrets", "Workers", "Workflow")


def synthesize(outdir: Path, *command: str, context: str = "{}") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "CDK_OUTDIR": str(outdir), "CDK_CONTEXT_JSON": context},
        capture_output=True,
        text=True,
        timeout=100,
        cwd=outdir,
    )


def test_the_application_synthesizes_every_stack_without_a_finding(tmp_path: Path, packages: Path) -> None:
    done = synthesize(tmp_path, "-m", "differently_infra.app", context=f'{{"packages": "{packages}"}}')

    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in tmp_path.glob("*.template.json")} == {
        f"Differently-{stack}.template.json" for stack in STACKS
    }


def test_a_finding_fails_the_synthesis_and_is_named(tmp_path: Path) -> None:
    done = synthesize(tmp_path, "-c", PLANTED)

    assert done.returncode != 0
    assert "AwsSolutions-S1" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("written", "said"), [("streamin = true", "there is no key streamin"), (None, "run `make layers` first")]
)
def test_what_cannot_be_deployed_is_said_before_anything_is_made(
    tmp_path: Path, packages: Path, written: str | None, said: str
) -> None:
    if written is not None:
        (tmp_path / "deployment.toml").write_text(written)
    found = packages if written is not None else tmp_path
    done = synthesize(tmp_path, "-m", "differently_infra.app", context=f'{{"packages": "{found}"}}')

    assert done.returncode == 1
    assert said in done.stderr
    assert not list(tmp_path.glob("*.template.json"))
    assert set(FUNCTIONS) <= {path.name for path in packages.iterdir()}
