"""What faults are planted in: graphs of the parts of a Llama and of model families, with a recorded run."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from functools import lru_cache

import torch

from dort_compare import DebugBackend
from dort_compare.compiled import graph_run, run_compiled
from dort_compare.models import LlamaConfig, build
from dort_compare.models.families import FAMILIES, build_family
from dort_compare.trace import GraphRun
from dort_compare.trace.call import Call

AUTOCAST = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
WIDTHS: dict[str, dict[str, int]] = {
    "narrow": {"hidden": 32, "heads": 4, "kv_heads": 2, "intermediate": 48, "vocabulary": 50},
    "wide": {"hidden": 512, "heads": 8, "kv_heads": 4, "intermediate": 2000, "vocabulary": 4000},
}


@dataclass(frozen=True)
class Subject:
    """One model with its sizes, a precision, and whether gradients are asked for; all fields are strings."""

    model: str
    source: str = "native"
    attention: str = "eager"
    precision: str = "float32"
    backward: str = "backward"
    batch: str = "2"
    seq: str = "8"
    width: str = "narrow"
    seed: str = "0"

    def __str__(self) -> str:
        return " ".join(astuple(self))


@lru_cache(maxsize=1)
def graph_runs(subject: Subject) -> tuple[GraphRun, ...]:
    """The graphs of a subject, compiled whole, each with the inputs of its run."""
    call, model = call_and_model(subject)
    backend = DebugBackend(fallback=False)
    run_compiled(model, call, backend)
    return tuple(graph_run(graph) for graph in backend.graphs if graph.runs)


def call_and_model(subject: Subject) -> tuple[Call, torch.nn.Module]:
    """The model of a subject, and how it is called."""
    wants_gradients, autocast = subject.backward == "backward", AUTOCAST[subject.precision]
    if subject.model in FAMILIES:
        model, args, kwargs = build_family(subject.model, int(subject.seed))
        return Call(args, kwargs, wants_gradients, None, autocast), model
    model, inputs = build(
        subject.model,
        LlamaConfig(**WIDTHS[subject.width], attention=subject.attention),
        source=subject.source,
        batch=int(subject.batch),
        seq=int(subject.seq),
        seed=int(subject.seed),
        mask=subject.model == "model",
    )
    return Call(inputs, {}, wants_gradients, None, autocast), model
