"""The standalone verifier as a module, loaded from its one file as whoever downloads it has it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[2] / "clients" / "verifier" / "verify_audit.py"


def load() -> Any:
    spec = importlib.util.spec_from_file_location("verify_audit", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
