"""What ONNX says of its operators."""

from __future__ import annotations

import functools

import onnx


def plain_domain(domain: str) -> str:
    """The name of a domain; ONNX's own has two."""
    return "" if domain == "ai.onnx" else domain


@functools.lru_cache(maxsize=1024)
def schema_of(op_type: str, version: int, domain: str) -> onnx.defs.OpSchema | None:
    """That of an operator in a version of a plain domain; None where ONNX knows none."""
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except (onnx.defs.SchemaError, TypeError):  # TypeError for a version of more than 32 bits
        return None
