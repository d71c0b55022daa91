"""Keys of modules in the ``meta`` of FX nodes."""

from __future__ import annotations

from torch import fx

from dort_compare.node_meta import MERGED, key_in_loop, metas_of, module_of_key, moved_key

GRAPH = fx.Graph()
FIRST, SECOND = GRAPH.placeholder("first"), GRAPH.placeholder("second")


def test_torchs_key_is_of_a_module_by_its_id() -> None:
    assert module_of_key("140") == (140, None)
    assert module_of_key("140@2") == (140, None)


def test_a_moved_key_is_of_a_module_like_the_one_at_its_path() -> None:
    assert module_of_key(moved_key("140@1", "layers.0.act", FIRST)) == (140, "layers.0.act")


def test_what_is_moved_again_is_like_the_one_that_was_traced() -> None:
    again = moved_key(moved_key("140", "layers.0", FIRST), "layers.1", SECOND)
    assert module_of_key(again) == (140, "layers.0")
    assert again != moved_key(moved_key("140", "layers.0", SECOND), "layers.1", FIRST)


def test_names_and_what_loops_call_are_of_no_module() -> None:
    assert module_of_key("L__self__act") == (0, None)
    assert module_of_key(key_in_loop("140")) == (0, None)


def test_a_node_has_the_meta_of_what_was_merged_into_it() -> None:
    node = GRAPH.placeholder("node")
    node.meta = {"seq_nr": 1, MERGED: [{"seq_nr": 2}]}
    assert [meta["seq_nr"] for meta in metas_of(node)] == [1, 2]
