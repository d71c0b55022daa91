"""What torch takes apart before autograd, where it asks no table of decompositions, traced otherwise for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import DispatchKey

_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)


@contextmanager
def traced_by(op: torch._ops.OpOverload, function: Callable[..., Any] | None) -> Iterator[None]:
    """``op`` is traced by ``function``, or where that is None as it is, with the gradient that torch has for it.

    It becomes composite for torch only if it was: ``torch.export`` refuses one of torch's that is all of a sudden.
    """
    own = dict(op.py_kernels)
    composite = {key for key in _KEYS if op.py_kernels.pop(key, None)}
    if function:
        op.py_kernels.update(dict.fromkeys({DispatchKey.Autograd, *composite}, function))
    op._dispatch_cache.clear()
    try:
        yield
    finally:
        op.py_kernels.clear()
        op.py_kernels.update(own)
        op._dispatch_cache.clear()
