"""Every part of a Llama, in every precision, forward and backward, agrees with eager on the CPU."""

from __future__ import annotations

import pytest
import torch
from every_pair import every_pair

from dort_compare import compare
from dort_compare.models import PARTS, SOURCES, LlamaConfig, build
from dort_compare.models.llama import ATTENTIONS

PRECISIONS = {"float32": None, "float16": torch.float16, "bfloat16": torch.bfloat16}


@every_pair(source=SOURCES, part=PARTS, attention=ATTENTIONS, precision=PRECISIONS, backward=(True, False))
def test_agrees(source: str, part: str, attention: str, precision: str, backward: bool) -> None:
    if source == "hf":
        pytest.importorskip("transformers")
    config = LlamaConfig(hidden=32, heads=4, kv_heads=2, intermediate=48, vocabulary=50, layers=1, attention=attention)
    module, inputs = build(part, config, source=source, seq=16, mask=part == "model")
    report = compare(module, inputs, backward=backward, autocast=PRECISIONS[precision])
    assert report.verdict == "agree", str(report)
    assert report.fallbacks == ()
    assert {row.phase for row in report.rows} == ({"forward", "backward"} if backward else {"inference"})
    assert {row.status for row in report.rows} == {"ok"}
    gradients = {row.name for row in report.outputs if row.kind == "gradient"}
    assert gradients == ({name for name, _ in module.named_parameters()} if backward else set())
