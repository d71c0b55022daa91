"""Which opsets the installed packages take."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from dort_compare.errors import UsageError
from dort_compare.runtime.opsets import checked_opset, newest_opset


def test_the_newest_opset_has_schemas_and_makes_sessions() -> None:
    assert 18 < newest_opset() <= onnx.defs.onnx_opset_version()
    assert checked_opset(None, newest_opset()) == newest_opset()
    assert checked_opset(18, newest_opset()) == 18


@pytest.mark.parametrize("opset", [17, 999, "20"])
def test_an_opset_outside_the_range_is_refused(opset: Any) -> None:
    with pytest.raises(UsageError, match=f"opset {opset!r} is not supported: choose 18 to {newest_opset()}"):
        checked_opset(opset, newest_opset())
