"""Names that stand for one another in two models, by their words."""

from __future__ import annotations

import pytest

from dort_compare.align.names import by_name

LAYERS = {f"p_layers_{i}_norm{k}_weight": f"layers.{i}.norm{k}.weight" for i in range(4) for k in (1, 2)}
BLOCKS = {f"p_layer1_{i}_conv{k}_weight": f"layer1.{i}.conv{k}.weight" for i in range(3) for k in (1, 2)}
CASES: dict[str, tuple[dict[str, str], list[str], list[str]]] = {
    "prefixes": (
        {"p_fc1_weight": "fc1.weight", "p_fc2_weight": "fc2.weight"},
        ["p_fc1_weight", "p_fc2_weight"],
        ["fc2.weight", "fc1.weight"],
    ),
    "the last of both": (
        {"p_fc1_weight": "fc1.weight", "arg3_1": "val_7"},
        ["arg3_1", "p_fc1_weight"],
        ["val_7", "fc1.weight"],
    ),
    "layers": (LAYERS, [*LAYERS], [*reversed(LAYERS.values())]),
    "blocks": (BLOCKS, [*BLOCKS], [*reversed(BLOCKS.values())]),
    "the same": ({name: name for name in BLOCKS.values()}, [*BLOCKS.values()], [*BLOCKS.values()]),
    "numbers alone": ({}, ["arg1_1", "arg4_1"], ["1.bias", "0.bias"]),
    "other numbers alone": ({}, ["arg0_3", "arg1_7"], ["3.bias", "7.bias"]),
    "one word that two have": ({}, ["arg_bias", "x"], ["0.bias", "1.bias"]),
    "one left for two": ({"b_bias": "b.bias"}, ["a_1", "b_bias"], ["b.bias"]),
    "nothing": ({}, ["a"], []),
}


@pytest.mark.parametrize("name", CASES)
def test_names_are_told_apart_by_words(name: str) -> None:
    expected, names, others = CASES[name]
    assert by_name(names, others) == expected
    assert by_name(names[::-1], others[::-1]) == expected
