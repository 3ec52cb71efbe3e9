"""The folders that are deployed as code, made without Docker.

    python -m differently_infra.packaging            for Lambda: Python 3.13 on arm64
    python -m differently_infra.packaging --host P   for this machine and the interpreter P, which the emulator uses

    dist/<target>/dependencies/python     the packages of the runtime lock, built for the target
    dist/<target>/code/python             core, adapters and what functions share on AWS
    dist/<target>/code/bin                the exec wrapper
    dist/<target>/<function package>      one folder for each package of functions

Dependencies come as wheels for the target platform, each checked against the lock; a package without one fails at once.
A layer is read-only, so byte code that it lacks is compiled anew at every cold start (a second and more): it is shipped
where an interpreter of the target's version is found to compile it with.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
LOCK: Final = ROOT / "requirements" / "runtime.txt"
UV: Final = ROOT / ".venv-tools" / "bin" / "uv"
VERSION: Final = "3.13"
PLATFORM: Final = "aarch64-manylinux_2_28"
LAYERS: Final = ("core", "adapters", "aws")
FUNCTIONS: Final = ("api", "scheduler", "reconciler")
SERVICES: Final = frozenset(
    {
        "bedrock-agentcore", "bedrock-agentcore-control", "dynamodb", "events", "kms", "lambda", "lambda-core",
        "lambda-microvms", "s3", "secretsmanager", "sqs", "sso", "sso-oidc", "stepfunctions", "sts",
    }
)  # fmt: skip
"""The services whose descriptions are shipped, of botocore's 450: with them all the layer would be twice its size."""
STAMP: Final = ".made"


class Unbuildable(Exception):
    """The text says what is missing."""


@dataclass(frozen=True)
class Target:
    """What the code is for. `interpreter` compiles its byte code; None ships none."""

    name: str
    install: tuple[str, ...]
    interpreter: str | None

    @property
    def folder(self) -> Path:
        return ROOT / "dist" / self.name


def for_lambda() -> Target:
    install = ("--python-version", VERSION, "--python-platform", PLATFORM)
    return Target("lambda", install, _interpreter())


def for_host(python: str) -> Target:
    return Target("host", ("--python", python), python)


def _interpreter() -> str | None:
    """An interpreter of Lambda's version, if there is one that starts."""
    for name in (os.environ.get("PYTHON313"), f"python{VERSION}", "python3", sys.executable):
        found = shutil.which(name) if name else None
        if found is not None and _version(found) == VERSION:
            return found
    return None


def _version(python: str) -> str | None:
    asked = subprocess.run(
        [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() if asked.returncode == 0 else None


def build(target: Target) -> Path:
    """Make what has changed; the folder."""
    target.folder.mkdir(parents=True, exist_ok=True)
    _dependencies(target)
    _code(target)
    return target.folder


def _dependencies(target: Target) -> None:
    folder = target.folder / "dependencies"
    stamp = folder / STAMP
    key = _key(target)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == key:
        return
    if not UV.exists():
        raise Unbuildable(f"{UV.relative_to(ROOT)} is missing: run `make layers`, which brings it.")
    shutil.rmtree(folder, ignore_errors=True)
    packages = folder / "python"
    command = [
        str(UV), "pip", "install", "--quiet", "--no-config", "--no-deps", "--only-binary", ":all:", "--require-hashes",
        "--target", str(packages), *target.install, "--requirement", str(LOCK),
    ]  # fmt: skip
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        raise Unbuildable("The packages of requirements/runtime.txt could not be installed; the lines above say why.")
    _trim(packages)
    _compile(target, packages)
    stamp.write_text(key, encoding="utf-8")


def _key(target: Target) -> str:
    made_of = (LOCK.read_text(encoding="utf-8"), str(target), ",".join(sorted(SERVICES)), __doc__ or "")
    return hashlib.sha256("\n".join(made_of).encode()).hexdigest()


def _trim(packages: Path) -> None:
    for service in (packages / "botocore" / "data").iterdir():
        if service.is_dir() and service.name not in SERVICES:
            shutil.rmtree(service)
    shutil.rmtree(packages / "bin", ignore_errors=True)
    (packages / ".lock").unlink(missing_ok=True)


def _code(target: Target) -> None:
    """Ours is small and changes often, so it is made anew each time."""
    layer = target.folder / "code"
    shutil.rmtree(layer, ignore_errors=True)
    for name in LAYERS:
        _copy(ROOT / "layers" / name / f"differently_{name}", layer / "python" / f"differently_{name}")
    shutil.copytree(ROOT / "layers" / "aws" / "bin", layer / "bin")
    _compile(target, layer / "python")
    for name in FUNCTIONS:
        folder = target.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        _copy(ROOT / "functions" / name / f"differently_{name}", folder / f"differently_{name}")
        _compile(target, folder)


def _copy(source: Path, into: Path) -> None:
    shutil.copytree(source, into, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", "py.typed"))


def _compile(target: Target, folder: Path) -> None:
    """Byte code that is taken without a look at its source: times in an archive say nothing."""
    if target.interpreter is None:
        return
    subprocess.run(
        [target.interpreter, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", str(folder),
         str(folder)], check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m differently_infra.packaging")
    parser.add_argument("--host", metavar="PYTHON", help="build for this machine and this interpreter")
    given = parser.parse_args(arguments)
    target = for_host(given.host) if given.host else for_lambda()
    try:
        folder = build(target)
    except Unbuildable as error:
        print(f"packaging: {error}", file=sys.stderr)
        return 1
    if target.interpreter is None:
        print(
            f"packaging: no Python {VERSION} here, so no byte code is shipped and cold starts take a second longer; "
            f"install it or name it in PYTHON313",
            file=sys.stderr,
        )
    print(folder.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
