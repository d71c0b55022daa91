"""Dumps that are checked with other models; those of a module are not written to."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from small_models import mlp

from dort_compare import compare


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The forward and backward graph of a small network."""
    folder = tmp_path_factory.mktemp("offline") / "dump"
    torch.manual_seed(0)
    compare(mlp(), (torch.randn(5, 3),), backward=True, dump=folder)
    return folder


@pytest.fixture
def copy(dump: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dump, tmp_path / "dump"))
