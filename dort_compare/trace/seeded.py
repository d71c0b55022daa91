"""The same random numbers in every run of a model."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded() -> Iterator[None]:
    """Within it torch, numpy and Python draw the same numbers each time; what they draw afterwards does not change.

    GPUs are left alone while nothing has used them: what the first run is first to draw there, others do not.
    """
    python, numpy = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(0)
        if devices:
            torch.cuda.manual_seed_all(0)
        random.seed(0)
        np.random.seed(0)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
