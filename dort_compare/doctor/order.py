"""All that is looked at, in order."""

from __future__ import annotations

from collections.abc import Iterator

from dort_compare.doctor import machine, packages
from dort_compare.doctor.finding import Finding
from dort_compare.errors import one_line

CHECKS = (
    packages.python,
    packages.required,
    packages.optional,
    machine.providers,
    machine.cuda,
    machine.compiler,
    machine.folders,
    machine.cache,
    machine.threads,
    machine.comparison,
)


def findings() -> Iterator[Finding]:
    """What every check finds; one that raises is broken, and the others are made nevertheless."""
    for check in CHECKS:
        try:
            yield from check()
        except Exception as problem:  # noqa: BLE001  (what is broken may raise anything)
            yield Finding(check.__name__, "broken", one_line(problem), "pip install --force-reinstall dort-compare")
