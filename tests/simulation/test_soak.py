"""A short while of the soak, with every change; the whole of it is `python -m tests.simulation.soak`."""

from __future__ import annotations

from .soak import Plant, minute

LIVE = 30
MINUTES = 240


def test_four_hours_of_a_full_installation_leave_nothing_behind() -> None:
    plant = Plant(1, LIVE, 0.1)
    plant.begin()
    made = sum(minute(plant, LIVE, number) for number in range(1, MINUTES + 1))
    assert made > LIVE
    assert len(plant.met) > 20, "so many kinds of faults and refusals were met"
    assert plant.end() == []


def test_what_waits_for_an_hour_runs_when_the_backends_are_back() -> None:
    plant = Plant(2, 8, 0.0)
    plant.tick(0)
    for backend in plant.backends:
        backend.up = False
    plant.tick(1)
    for _ in range(8):
        plant.create(queueTimeoutSeconds=12 * 3600, idleTimeoutSeconds=0)
    for number in range(2, 62):
        plant.tick(number)
    assert not any(backend.instances() for backend in plant.backends)
    for backend in plant.backends:
        backend.up = True
    for number in range(62, 66):
        plant.tick(number)
    assert sum(len(backend.instances()) for backend in plant.backends) == 8
    assert plant.end() == []
