"""How soon the HTML report of many values is there to be read: its paint and its rest, beside those of a short report.

    python benchmarks/report_page.py --write benchmarks/results/report-page.md

The rows are those of a Llama attention layer's report, forward and backward, over and over under names of their own;
pictures, which a graph has at most 32 of, are not repeated. Both files are opened in turn by a headless Chromium
without a network, from the disk. *Painted* is the first contentful paint; *settled* is the first moment, after the load
event and a frame, at which the page has nothing left to do: all rows are read, the plot is drawn, the table and its
filters answer. Milliseconds from the start of the navigation, medians of the turns; a ratio is the median of the ratios
within a turn. That the table says how many rows it has, and that its last row can be found, is checked first.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chromium import MISSING, chromium
from pages import page, show
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from dort_compare import compare
from dort_compare.models import build
from dort_compare.models.llama import LlamaConfig
from dort_compare.report import html

WATCH = """
addEventListener("load", () =>
  requestAnimationFrame(() => requestIdleCallback(() => { window.settled = performance.now(); })));
"""
PAINTED = "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
SECONDS = 60


def report(rows: int | None) -> dict[str, Any]:
    """The report of an attention layer; with ``rows``, with so many values."""
    model, inputs = build("attention", LlamaConfig(), batch=1, seq=8)
    data = compare(model, inputs, backward=True).as_json()
    if rows is not None:
        few = data["rows"]
        data["rows"] = [_again(few[i % len(few)], i) if i >= len(few) else few[i] for i in range(rows)]
    return data


def _again(row: dict[str, Any], index: int) -> dict[str, Any]:
    return {**row, "fx_node": f"{row['fx_node']}_{index}", "call": f"call_{index}", "picture": None}


def opened(chrome: webdriver.Chrome, file: Path) -> dict[str, float]:
    """Milliseconds until the page is painted and settled."""
    chrome.get("about:blank")
    chrome.get(file.as_uri())
    settled = until(chrome, lambda: chrome.execute_script("return window.settled"))
    return {"painted": chrome.execute_script(PAINTED), "settled": settled}


def until(chrome: webdriver.Chrome, condition: Any) -> Any:
    """What ``condition`` gives once it holds."""
    return WebDriverWait(chrome, SECONDS, poll_frequency=0.05).until(lambda _: condition())


def check(chrome: webdriver.Chrome, file: Path, data: dict[str, Any]) -> None:
    """Ends the program where the page does not hold every row."""
    opened(chrome, file)
    many, last = len(data["rows"]), data["rows"][-1]["fx_node"]
    said = chrome.find_element(By.CSS_SELECTOR, ".left").text
    if not said.startswith(f"{many:,} of {many:,}"):
        raise SystemExit(f"{file.name} says {said!r}, and it has {many} rows")
    chrome.find_element(By.ID, "search").send_keys(last)
    found = "return [...document.querySelectorAll('.ag-row [col-id=fx_node]')].map((cell) => cell.textContent)"
    until(chrome, lambda: chrome.execute_script(found) == [last])


def lines(times: dict[str, list[dict[str, float]]], sizes: dict[str, int]) -> Iterator[list[str]]:
    """A line a file: megabytes, medians, and the settling over that of the short report."""
    for name, each in times.items():
        medians = [statistics.median(turn[what] for turn in each) for what in ("painted", "settled")]
        ratio = statistics.median(
            turn["settled"] / short["settled"] for turn, short in zip(each, next(iter(times.values())), strict=True)
        )
        least = min(turn["settled"] for turn in each)
        yield [name, f"{sizes[name] / 2**20:.1f}", *(f"{m:.0f}" for m in medians), f"{least:.0f}", f"{ratio:.2f}"]


def main() -> None:
    """Prints the table and, where asked to, writes it."""
    description, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=description, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--write", type=Path, help="file for the table, beside the screen")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {}
        for rows in (None, given.rows):
            data = report(rows)
            said = f"{len(data['rows']):,} values"
            files[said] = folder / f"{len(data['rows'])}.html", data
            files[said][0].write_text(html.page(data))
        with chromium(folder / "profile") as chrome:
            if chrome is None:
                raise SystemExit(MISSING)
            chrome.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
            for file, data in files.values():
                check(chrome, file, data)
            turns = [{said: opened(chrome, file) for said, (file, _) in files.items()} for _ in range(given.turns)]
            where = f"Chromium {chrome.capabilities['browserVersion']}"
        times = {said: [turn[said] for turn in turns] for said in files}
        sizes = {said: file.stat().st_size for said, (file, _) in files.items()}
    heads = ["report", "MiB", "painted, ms", "settled, ms", "least settled, ms", "settled / short report's"]
    show(
        page(f"The HTML report, opened in {where}", __doc__ or "", ["torch", "selenium"], heads, lines(times, sizes)),
        given.write,
    )


if __name__ == "__main__":
    main()
