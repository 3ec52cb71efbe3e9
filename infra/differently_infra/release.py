"""One release, from a tag: wheels, the code of the functions, templates, what it is made of, and checksums.

    python -m differently_infra.release [--snapshot]

Into dist/release/VERSION. It is made only from a clean checkout whose tag is the version that pyproject.toml says;
`--snapshot` makes the same of anything, to look at. What is not made anew is the same byte for byte: archives carry no
times, and are in order.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .packaging import LOCK, ROOT, Unbuildable, build, for_lambda

EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that an archive can carry."""
MODE: Final = 0o644
PINNED: Final = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^\s;\\]+)", re.MULTILINE)
HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
CLIENT: Final = ROOT / "clients" / "python"


class Unreleasable(Exception):
    """The text says what is in the way."""


@dataclass(frozen=True)
class Checkout:
    """What is checked out, as git tells."""

    version: str
    commit: str
    tags: tuple[str, ...]
    changed: tuple[str, ...]

    @classmethod
    def read(cls, root: Path) -> Checkout:
        def git(*arguments: str) -> tuple[str, ...]:
            done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise Unreleasable(f"git {arguments[0]}: {done.stderr.strip()}")
            return tuple(done.stdout.splitlines())

        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        (commit,) = git("rev-parse", "HEAD")
        return cls(str(project["version"]), commit, git("tag", "--points-at", "HEAD"), git("status", "--porcelain"))

    def check(self) -> None:
        """Raises `Unreleasable` for what is no release."""
        if self.changed:
            raise Unreleasable(
                f"{len(self.changed)} files are changed, {self.changed[0].strip()} among them: commit first."
            )
        if f"v{self.version}" not in self.tags:
            raise Unreleasable(
                f"HEAD has no tag v{self.version}, which is the version in pyproject.toml: tag it first."
            )


def make(checkout: Checkout, folder: Path) -> list[Path]:
    """Everything, in a folder that is made anew; the files in order, checksums last."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    code = build(for_lambda())
    for package in sorted(path for path in code.iterdir() if path.is_dir()):
        archive(package, folder / f"{package.name}.zip")
    for project in (ROOT, CLIENT):
        if (project / "pyproject.toml").is_file():
            _wheel(project, folder)
    _templates(code, folder)
    contents = bill_of_materials(checkout, LOCK.read_text(encoding="utf-8"))
    (folder / "sbom.cdx.json").write_text(json.dumps(contents, indent=2) + "\n", encoding="utf-8")
    made = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = folder / "SHA256SUMS"
    sums.write_text("".join(f"{_sha256(path)}  {path.relative_to(folder)}\n" for path in made), encoding="utf-8")
    return [*made, sums]


def archive(source: Path, target: Path) -> None:
    """The same folder gives the same bytes, whenever and wherever."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as zipped:
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(str(path.relative_to(source)), EPOCH)
            executable = path.stat().st_mode & 0o100
            entry.external_attr = (MODE | (0o111 if executable else 0)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            zipped.writestr(entry, path.read_bytes())


def _wheel(project: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unreleasable(f"The wheel of {project.name} was not built: {done.stderr.strip()[-500:]}")


def _templates(code: Path, folder: Path) -> None:
    """Of the default configuration, as CloudFormation gets them; code is named by the hashes of its folders."""
    from .check import synthesize  # starts Node
    from .configuration import Configuration
    from .packages import Packages

    output = folder / "templates"
    for template in synthesize("default", Configuration(), Packages.of(code), folder / "cdk.out"):
        output.mkdir(exist_ok=True)
        shutil.copyfile(template, output / template.name)
    shutil.rmtree(folder / "cdk.out")


def bill_of_materials(checkout: Checkout, lock: str) -> Mapping[str, Any]:
    """CycloneDX: what runs in the functions, by name, version and the hashes that it may have."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application", "name": "differently", "version": checkout.version,
                "properties": [{"name": "commit", "value": checkout.commit}],
            }
        },
        "components": list(_components(lock)),
    }  # fmt: skip


def _components(lock: str) -> Iterator[Mapping[str, Any]]:
    pins = list(PINNED.finditer(lock))
    ends = [pin.start() for pin in pins[1:]] + [len(lock)]
    for pin, end in zip(pins, ends, strict=True):
        name, version = pin.groups()
        hashes = [{"alg": "SHA-256", "content": found} for found in HASH.findall(lock[pin.start() : end])]
        yield {
            "type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}", "hashes": hashes,
        }  # fmt: skip


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m differently_infra.release")
    parser.add_argument("--snapshot", action="store_true", help="of whatever is checked out; no release")
    given = parser.parse_args(arguments)
    try:
        checkout = Checkout.read(ROOT)
        if not given.snapshot:
            checkout.check()
        name = f"{checkout.version}-snapshot" if given.snapshot else checkout.version
        for path in make(checkout, ROOT / "dist" / "release" / name):
            print(path.relative_to(ROOT))
    except (Unreleasable, Unbuildable, RuntimeError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
