"""What a bisection found, as text in 80 columns where names allow."""

from __future__ import annotations

from dort_compare.measure.optimizers.bisect import Bisection, Blamed
from dort_compare.measure.optimizers.onnx_error import Departure
from dort_compare.plain import printable
from dort_compare.report.wording import wrapped


def bisection_text(name: str, found: Bisection) -> str:
    """A line for the graph ``name``, and one for every optimizer that is to blame."""
    tried = f"{', '.join(found.tried) or 'no optimizer'} changed the model; {found.sessions} models were run"
    lines = []
    if found.forced is not None:
        changes = ", ".join(found.forced.changes)
        lines.append(f"{name}: departs with all optimizers off: {_departure_text(found.forced.departure)}")
        lines.append(f"  what changes the model even then, and cannot be switched off: {changes}")
    if found.departure is None:
        lines.append(f"{name}: no optimizer departs; {tried}")
        return "\n".join(wrapped(printable(line)) for line in lines)
    lines.append(f"{name}: departs from level {found.level} on: {_departure_text(found.departure)}")
    lines += [f"  {_blamed_text(blamed)}" for blamed in found.blamed]
    if not found.blamed:
        lines.append("  and does so without all the optimizers that ONNX Runtime names")
    return "\n".join(wrapped(printable(line)) for line in [*lines, f"  {tried}"])


def _blamed_text(blamed: Blamed) -> str:
    needs = f" (together with {', '.join(blamed.needs)})" if blamed.needs else ""
    return f"{blamed.optimizer}{needs}: {_departure_text(blamed.departure)}"


def _departure_text(departure: Departure) -> str:
    made = f" made by {', '.join(departure.op_types)}" if departure.op_types else ""
    fused = f" in place of FX {', '.join(departure.fused)}" if departure.fused else ""
    value = f"{departure.value}{made}{fused}: " if departure.value else ""
    return f"{value}{departure.reason}"
