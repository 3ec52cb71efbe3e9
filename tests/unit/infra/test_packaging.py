"""What is deployed holds what the code asks for."""

from __future__ import annotations

import re
from pathlib import Path

from differently_infra.packaging import FUNCTIONS, LAYERS, ROOT, SERVICES, for_lambda

CLIENT = re.compile(r"(?:create_client|\bclient)\(\s*\"([a-z0-9-]+)\"")


def sources() -> list[Path]:
    parts = [ROOT / "layers" / name for name in LAYERS] + [ROOT / "functions" / name for name in FUNCTIONS]
    return [path for part in parts for path in part.rglob("*.py")]


def test_every_service_that_code_makes_a_client_of_is_shipped() -> None:
    asked = {service for path in sources() for service in CLIENT.findall(path.read_text(encoding="utf-8"))}
    assert asked >= {"kms", "lambda", "sqs", "stepfunctions", "secretsmanager"}
    assert asked <= SERVICES


def test_packages_are_resolved_for_lambda_s_interpreter_and_processor() -> None:
    assert for_lambda().install == ("--python-version", "3.13", "--python-platform", "aarch64-manylinux_2_28")
