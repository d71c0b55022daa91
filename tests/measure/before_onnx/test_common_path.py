"""The module that several nodes have in common."""

from __future__ import annotations

import pytest

from dort_compare.measure.before_onnx.modules import common_path


@pytest.mark.parametrize(
    ("paths", "path"),
    [(["a.b.c", "a.b"], "a.b"), (["a", "b"], ""), (["a.b", ""], ""), (["ab.c", "ab.d"], "ab"), (["ab", "ac"], "")],
)
def test_the_innermost_module_that_all_lie_in(paths: list[str], path: str) -> None:
    assert common_path(paths) == path
