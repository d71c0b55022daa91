"""The folders in which readers of the pages work."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_folders import assume


@pytest.fixture(scope="session")
def assumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("assumed")
    assume(folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a reader works. What is imported from there is forgotten after."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("FORCE_COLOR", "NO_COLOR", "TORCH_LOGS"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(f"{tmp_path}/"):
            del sys.modules[name]
