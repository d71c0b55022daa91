"""The kinds of faults: each gives, for an ONNX node, the faults of that kind which it can have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType

import fault_operators
import fault_places
import fault_values
from planted import Fault, Site

Kind = Callable[[Site], Iterator[Fault]]

KINDS: MappingProxyType[str, Kind] = MappingProxyType(
    {**fault_operators.KINDS, **fault_places.KINDS, **fault_values.KINDS}
)


def faults_of(kind: str, sites: list[Site]) -> Iterator[Fault]:
    """All faults of a kind at ``sites``, in their order."""
    for site in sites:
        yield from KINDS[kind](site)
