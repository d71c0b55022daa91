"""Every command of the gallery is run: it ends as its page says, writes what stands there and a report of the cause."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch
from doc_folders import prepare
from doc_pages import ROOT
from doc_reader import Reader

GALLERY = ROOT / "docs" / "gallery"
CAUSES = {
    "padded_pool": "avg_pool2d",
    "sigmoid_tail": "sigmoid",
    "token_hash": "pow_1",
    "scores_overflow": "bmm",
    "small_gradients": "getitem",
    "rotary_positions": "arange",
    "upsampled_mask": "upsample_linear1d",
    "recurrent_dropout": "cat_1",
    "mixture": "logaddexp",
    "enlarged": "_upsample_bilinear2d_aa",
    "patch_embedding": "convolution_1",
}
"""The FX node that is the cause, by page."""
MARKS = {
    "scores_overflow": [pytest.mark.slow],
    "small_gradients": [pytest.mark.slow],
    "patch_embedding": [
        pytest.mark.skipif(not torch.cpu.get_capabilities().get("amx_bf16"), reason="a fault of kernels for AMX")
    ],
}


def names() -> Iterator[object]:
    for name in CAUSES:
        yield pytest.param(name, marks=MARKS.get(name, []))


def text(name: str) -> str:
    return (GALLERY / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", list(names()))
def test_the_commands_of_a_page_write_what_stands_there(name, folder):
    page = GALLERY / f"{name}.md"
    Reader(page, folder).read(prepare(page, folder, folder))
    report = (folder / f"{name}.html").read_text(encoding="utf-8")
    assert re.search(rf'"([^"]* )?{CAUSES[name]}( [^"]*)?"', report)


def test_every_program_has_a_page_and_the_index_names_all():
    assert {path.stem for path in GALLERY.glob("*.py")} == set(CAUSES)
    assert {path.stem for path in GALLERY.glob("*.md")} == {*CAUSES, "index"}
    index = text("index")
    toctree = index.partition("```{toctree}")[2].split()
    for name in CAUSES:
        assert f"]({name}.md)" in index
        assert f"](reports/{name}.html)" in index
        assert name in toctree


@pytest.mark.parametrize("name", CAUSES)
def test_a_page_has_its_report_its_cause_and_a_check_of_it(name):
    lines = re.findall(r"^\$ (.*)$", text(name), re.MULTILINE)
    assert f"`{CAUSES[name]}`" in text(name)
    assert f"[The report](reports/{name}.html)" in text(name)
    assert lines[0].startswith("dort-compare run ")
    assert lines[0].endswith(f" --html {name}.html")
    assert lines[-1] == f"python {name}.py"
