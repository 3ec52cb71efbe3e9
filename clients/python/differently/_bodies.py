"""Bodies of creates and forks, from what callers give to what the API takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ._request import given


def create_body(
    *, project: str | None = None, profile: str | None = None, template: str | None = None, image: str | None = None,
    snapshot: str | None = None, cpu: float | None = None, memory_mib: int | None = None,
    disk_gib: int | None = None, env: Mapping[str, str] | None = None, secrets: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None, capabilities: Sequence[str] | None = None,
    pools: Sequence[str] | None = None, regions: Sequence[str] | None = None,
    preferred_pools: Sequence[str] | None = None, ttl_seconds: int | None = None, max_run_seconds: int | None = None,
    idle_timeout_seconds: int | None = None, queue_timeout_seconds: int | None = None, priority: int | None = None,
    egress: Mapping[str, Sequence[str]] | None = None, preemptible: bool | None = None,
    classification: str | None = None, kind: str | None = None, more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """What is None is left out. `more` is sent as it is: fields that this version does not know."""
    return {
        **given(
            kind=kind, project_id=project, profile=profile, template=template, image=image, snapshot_id=snapshot,
            resources=_size(cpu, memory_mib, disk_gib),
            env=_texts(env), secrets=_given_secrets(secrets), labels=_texts(labels),
            capabilities=_list(capabilities),
            placement=given(allowed_pools=_list(pools), regions=_list(regions), preferred_pools=_list(preferred_pools))
            or None,
            ttl_seconds=ttl_seconds, max_run_seconds=max_run_seconds, idle_timeout_seconds=idle_timeout_seconds,
            queue_timeout_seconds=queue_timeout_seconds, priority=priority,
            egress={name: list(rules) for name, rules in egress.items()} if egress is not None else None,
            preemptible=preemptible, classification=classification,
        ),
        **(more or {}),
    }  # fmt: skip


def _size(cpu: float | None, memory_mib: int | None, disk_gib: int | None) -> dict[str, Any] | None:
    asked = {"cpu": cpu, "memoryMiB": memory_mib, "diskGiB": disk_gib}
    return {name: value for name, value in asked.items() if value is not None} or None


def _texts(values: Mapping[str, str] | None) -> dict[str, str] | None:
    return dict(values) if values is not None else None


def _list(values: Sequence[str] | None) -> list[str] | None:
    return list(values) if values is not None else None


def _given_secrets(secrets: Mapping[str, str] | None) -> list[dict[str, str]] | None:
    """Variable to name of a secret: `{"API_KEY": "openai"}`."""
    return [{"env": env, "secret": name} for env, name in secrets.items()] if secrets is not None else None
