"""Asks the verdict about planted faults: is each blamed on exactly the FX node that it was planted in?"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from fault_kinds import faults_of
from fault_truth import Clean
from planted import Fault, Site, plant

from dort_compare.errors import DortError
from dort_compare.measure.graph_rows import graph_rows
from dort_compare.measure.rows import Row
from dort_compare.measure.verdict import judge
from dort_compare.trace import GraphRun

CLEAR = 4.0
"""A fault counts where it moves its op's result by more than so many noise floors."""


class Bench:
    """One graph that faults are planted in."""

    def __init__(self, run: GraphRun) -> None:
        self.run = run
        self.clean = Clean(run)
        self.rows = list(graph_rows(run))
        self.call_of = {row.fx_node: row.call for row in self.rows}
        self.floors = {row.onnx_value: row.noise_floor or 0.0 for row in self.rows if row.onnx_value}

    @cached_property
    def sites(self) -> list[Site]:
        """Where a fault can be planted: nodes of FX nodes whose value is compared."""
        compared = {row.call for row in self.rows if row.status != "unaligned"}
        return [s for s in self.clean.sites() if compared & {self.call_of.get(name, name) for name in s.fx_nodes}]

    def calls(self, fault: Fault) -> set[str]:
        """The calls that may be named for a fault: ``getitem`` stands for the call whose result it picks."""
        return {self.call_of.get(fx_node, fx_node) for fx_node in fault.fx_nodes}

    def trials(self, kind: str, most: int) -> Iterator[dict[str, Any]]:
        """Trials of a kind until so many counted, 0 for all, spread over what can go wrong."""
        counted = 0
        for fault in _spread(list(faults_of(kind, self.sites)), f"{kind} {self.run.phase}"):
            result = self.trial(fault)
            yield result
            counted += result.get("moved", 0.0) > CLEAR
            if most and counted >= most:
                return

    def trial(self, fault: Fault) -> dict[str, Any]:
        """What the fault does and what the verdict says of it; ``{"discarded": ...}`` for a model that does not run."""
        known = {"kind": fault.kind, "what": fault.what, "phase": self.run.phase, "planted": list(fault.fx_nodes)}
        moved = self.clean.moved(fault, self.floors)
        if moved is None:
            return {**known, "discarded": True}
        if moved == 0:
            return {**known, "moved": 0.0}
        rows = self._verdict([fault])
        if rows is None:
            return {**known, "discarded": True}
        causes = [cause.fx_node for cause in judge(rows, [])[1]]
        named = self.calls(fault)
        result = {
            **known,
            "moved": moved,
            "first": bool(causes) and causes[0] in named,
            "alone": bool(causes) and named.issuperset(causes),
        }
        if not result["first"] or not result["alone"]:
            result["rows"] = [told(row) for row in rows if row.call in named or row.status == "diverges"]
        return result

    def triples(self, kinds: Sequence[str], count: int) -> Iterator[dict[str, Any]]:
        """Three faults at once, each of another FX node and clear of the noise by itself."""
        chance = random.Random(f"triples {self.run.phase}")
        pool = [fault for kind in kinds for fault in faults_of(kind, self.sites)]
        for _ in range(count):
            chosen = self._three(pool, chance)
            rows = self._verdict(chosen) if len(chosen) == 3 else None
            if rows is None:
                continue
            causes = {cause.fx_node for cause in judge(rows, [])[1]}
            missed = [fault for fault in chosen if not self.calls(fault) & causes]
            extra = causes.difference(*map(self.calls, chosen))
            yield {
                "kind": "three at once",
                "what": [f"{fault.what} in {' '.join(fault.fx_nodes)}" for fault in chosen],
                "phase": self.run.phase,
                "named": not missed,
                "alone": not missed and not extra,
                "missed": [f"{fault.what} in {' '.join(fault.fx_nodes)}" for fault in missed],
                "extra": sorted(extra),
            }

    def _three(self, pool: list[Fault], chance: random.Random) -> list[Fault]:
        chosen: list[Fault] = []
        for fault in chance.sample(pool, min(len(pool), 200)):
            taken = {name for other in chosen for name in other.fx_nodes}
            if not taken & set(fault.fx_nodes) and (self.clean.moved(fault, self.floors) or 0) > CLEAR:
                chosen.append(fault)
            if len(chosen) == 3:
                break
        return chosen

    def _verdict(self, faults: Sequence[Fault]) -> list[Row] | None:
        run = self.run
        faulty = plant(run.onnx_model, faults)
        try:
            rows = list(graph_rows(GraphRun(run.phase, run.index, run.graph_module, faulty, run.inputs, run.providers)))
        except DortError:
            return None
        return rows


def _spread(faults: Sequence[Fault], seed: str) -> Iterator[Fault]:
    """The faults in a random order in which every description comes up early."""
    by_what: dict[str, list[Fault]] = {}
    for fault in random.Random(seed).sample(faults, len(faults)):
        by_what.setdefault(fault.what, []).append(fault)
    for turn in itertools.zip_longest(*by_what.values()):
        yield from filter(None, turn)


def told(row: Row) -> dict[str, Any]:
    """What a report of a wrong verdict needs to say of a row."""
    return {
        "fx_node": row.fx_node,
        "target": row.target,
        "dtype": row.dtype,
        "shape": list(row.shape),
        "status": row.status,
        "floor": row.noise_floor,
        "reason": row.reason,
        "local": row.local.max_abs if row.local else None,
        "finding": row.local.finding if row.local else None,
        "scale": row.local.scale if row.local else None,
        "torch_vs_float64": row.torch_vs_float64,
        "onnx_vs_float64": row.onnx_vs_float64,
        "local_torch_vs_float64": row.local_torch_vs_float64,
        "local_onnx_vs_float64": row.local_onnx_vs_float64,
    }
