"""Sessions that run a model as it stands."""

from __future__ import annotations

import onnxruntime as ort
import pytest

from dort_compare.runtime.providers import SessionSettings
from dort_compare.trace.as_it_is import AS_IT_IS, PART_AS_IT_IS


@pytest.mark.parametrize("settings", [AS_IT_IS, PART_AS_IT_IS], ids=["whole", "part"])
def test_no_optimizer_runs(settings: SessionSettings) -> None:
    assert settings.make_options().graph_optimization_level == ort.GraphOptimizationLevel.ORT_DISABLE_ALL


def test_a_part_keeps_no_memory() -> None:
    assert AS_IT_IS.make_options().enable_cpu_mem_arena
    assert not PART_AS_IT_IS.make_options().enable_cpu_mem_arena
