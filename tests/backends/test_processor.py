"""What is told of processors that are not this one."""

from __future__ import annotations

import runpy
from typing import Any

import pytest
import torch

from dort_compare.backends import processor


@pytest.mark.parametrize(
    ("vectors", "told", "is_slow"),
    [
        ("AVX512", {"cpu_name": "AMD EPYC", "avx_vnni": True}, True),
        ("AVX512", {"cpu_name": "AMD EPYC", "avx_vnni": False}, False),
        ("AVX2", {"cpu_name": "AMD EPYC", "avx_vnni": True}, False),
        ("AVX512", {"cpu_name": "Intel(R) Xeon(R)", "avx_vnni": True}, False),
        ("DEFAULT", {}, False),
    ],
    ids=["Zen 5", "Zen 4", "AVX2", "Intel", "another architecture"],
)
def test_torch_multiplies_slowly_where_its_vectors_are_half_as_wide_as_the_processors(
    vectors: str, told: dict[str, Any], is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: vectors)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: told)
    assert bool(runpy.run_path(processor.__file__)["MULTIPLIES_SLOWLY"]) is is_slow
