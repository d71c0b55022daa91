"""The HTML report as a person meets it, in a headless browser without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from browser import Page
from chromium import MISSING, chromium
from samples import INF, NAN, ONE, report, row
from selenium.webdriver import ActionChains, Chrome, Keys

from dort_compare.measure.history.changes import courses
from dort_compare.measure.history.runs import run_of
from dort_compare.measure.picture import picture
from dort_compare.onnx_diff import diff
from dort_compare.report import Report, html

HOSTILE = "</script><script>document.title = 'owned'</script>"
Show = Callable[[Report], Page]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found or pytest.skip(MISSING)


@pytest.fixture
def show(driver: Chrome, tmp_path: Path) -> Iterator[Show]:
    """Opens a report; nothing may have been said on the console in the end."""
    pages = []

    def opened(found: Report) -> Page:
        found.to_html(tmp_path / "report.html")
        pages.append(Page(driver, tmp_path / "report.html"))
        return pages[-1]

    yield opened
    assert [message for page in pages for message in page.errors()] == []


def graph(*names: str, bad: int | None = None) -> Report:
    found = [row(ONE + (1 if i == bad else 0), fx_node=name) for i, name in enumerate(names)]
    return report(*found, got=ONE if bad is None else ONE + 1)


def test_the_verdict_stands_on_top_and_the_cause_leads_to_its_row(show: Show) -> None:
    page = show(graph("a", "b", "c", bad=1))
    assert page.text("h1") == "Diverge"
    assert page.text(".sentence").startswith("backward b (aten.mul.Tensor) in module layers.0.mlp at model.py:7: max")
    page.find(".cause button").click()
    assert page.text("#detail h2") == "b"
    assert page.run("return document.activeElement.textContent") == "b"
    ActionChains(page.driver).send_keys(Keys.ESCAPE).perform()
    assert not page.find("#detail").is_displayed()
    assert page.run("return document.activeElement.closest('[row-id]').getAttribute('row-id')") == "1"


def test_search_and_filters_find_a_node(show: Show) -> None:
    page = show(graph("softmax", "matmul", "addmm", bad=2))
    ActionChains(page.driver).send_keys("/").send_keys("matm").perform()
    page.wait(lambda: page.cells("fx_node") == ["matmul"])
    assert page.text(".left") == "1 of 3 values"
    page.find(".filters > button").click()
    page.wait(lambda: len(page.cells("fx_node")) == 3)
    page.find("#search").send_keys("matmul")
    page.wait(lambda: page.cells("fx_node") == ["matmul"])
    page.run("document.querySelector('.cause button').click()")  # its row does not pass the filters
    page.wait(lambda: "addmm" in page.texts(".ag-row-selected [col-id=fx_node]"))
    assert page.text(".left") == "3 of 3 values"
    page.run("document.querySelector('input[name=diverges]').click()")
    page.wait(lambda: page.cells("fx_node") == ["addmm"])


def test_a_click_on_the_plot_lands_on_its_row(show: Show) -> None:
    page = show(graph(*(f"node_{i}" for i in range(101)), bad=50))
    area = page.find(".u-over")
    half = area.size["height"] // 2
    pointed = (  # the mark of the row in the middle is somewhere above or below
        ActionChains(page.driver, duration=0).move_to_element_with_offset(area, 0, y).perform() or page.text(".tip")
        for y in range(-half, half, 20)
    )
    assert any(text.startswith("node_50\n") for text in pointed)
    ActionChains(page.driver).click().perform()
    assert page.text("#detail h2") == "node_50"
    page.wait(lambda: "node_50" in page.cells("fx_node"))
    assert page.texts(".ag-row-selected [col-id=fx_node]") == ["node_50"]


def test_the_keyboard_alone_walks_the_plot_and_the_table(show: Show) -> None:
    page = show(graph("a", "b", "c", bad=2))
    page.run("document.querySelector('.plot').focus()")
    ActionChains(page.driver).send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT).perform()
    assert page.run("return document.getElementById('spoken').textContent").startswith("b, backward 1")
    ActionChains(page.driver).send_keys(Keys.ENTER).perform()
    assert page.text("#detail h2") == "b"
    ActionChains(page.driver).send_keys(Keys.ESCAPE).send_keys(Keys.ARROW_DOWN, Keys.ENTER).perform()
    page.wait(lambda: page.text("#detail h2") == "c")


def test_the_table_is_sorted_by_its_heads(show: Show) -> None:
    page = show(report(row(ONE, fx_node="small"), row(ONE + 2, fx_node="large"), row(ONE + 1, fx_node="middle")))
    page.find(".ag-header-cell[col-id=inherited] .ag-header-cell-text").click()
    page.wait(lambda: page.cells("fx_node") == ["large", "middle", "small"])


def test_twenty_thousand_rows(driver: Chrome, tmp_path: Path) -> None:
    one = row(ONE + 1e-6, inherited=replace(row(ONE + 1e-6).inherited, max_abs=1e-7)).to_json()
    data = report(row(ONE)).as_json()
    data["rows"] = [{**one, "fx_node": f"node_{i}", "call": f"node_{i}", "phase": "forward"} for i in range(20_000)]
    (tmp_path / "many.html").write_text(html.page(data))
    page = Page(driver, tmp_path / "many.html")
    assert page.text(".left") == "20,000 of 20,000 values"
    assert len(page.driver.find_elements("css selector", ".ag-row")) < 100  # what is in sight, and little more
    page.find("#search").send_keys("node_19999")
    page.wait(lambda: page.cells("fx_node") == ["node_19999"])
    assert page.errors() == []


def test_names_stay_text(show: Show) -> None:
    name = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">\x00\x1b[31m\u202e"
    shown = name.replace("\x00\x1b", "\\u{0}\\u{1b}").replace("\u202e", "\\u{202e}")
    bad = row(ONE + 1, **dict.fromkeys(("fx_node", "module", "source", "target", "onnx_value"), name), reason=name)
    page = show(report(bad, row(ONE), got=ONE + 1))
    page.find(".cause button").click()
    assert page.text("#detail h2") == shown
    assert page.cells("fx_node")[0] == shown
    assert shown in page.text(".cause")
    assert page.driver.title == "diverge - dort-compare"
    assert page.driver.find_elements("css selector", "img") == []


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (report(outputs=False), "the report holds no row"),
        (report(row(None), row(None)), "No value was held against another"),
        (report(*(row(NAN, fx_node=f"n{i}") for i in range(5)), got=NAN), "5 causes"),
        (report(*(row(INF) for _ in range(3))), "inf in ONNX where torch is finite"),
        (report(row(ONE), row(ONE)), "Agree"),
    ],
    ids=["no rows", "nothing compared", "NaN everywhere", "inf", "agree"],
)
def test_what_there_is_little_to_say_of_is_said(show: Show, found: Report, words: str) -> None:
    page = show(found)
    assert words in page.text("main")


def test_the_colours_follow_the_system_and_paper_is_light(show: Show) -> None:
    page = show(graph("a", "b", bad=1))
    ground = "return getComputedStyle(document.body).backgroundColor"
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    light = page.run(ground)
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    assert page.run(ground) != light
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {**dark, "media": "print"})
    page.run("dispatchEvent(new Event('beforeprint'))")
    assert page.run("return getComputedStyle(document.documentElement).colorScheme") == "light"
    assert "b" in page.texts(".paper td")
    assert not page.find(".grid").is_displayed()
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {})
    page.run("dispatchEvent(new Event('afterprint'))")
    assert page.texts(".paper td") == []


@pytest.mark.parametrize("many", [1, 3])
def test_every_control_has_a_name(show: Show, changed, many) -> None:
    runs = [graph("a", "b", bad=1)] * many
    page = show(*runs) if many == 1 else changed(*runs)
    if many == 1:
        page.find(".cause button").click()
    page.driver.execute_cdp_cmd("Accessibility.enable", {})
    nodes = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = {"button", "checkbox", "combobox", "searchbox", "link", "region", "application", "table"}
    named = [n for n in nodes if not n["ignored"] and n["role"]["value"] in roles]
    assert {n["role"]["value"] for n in named} >= {"button", "checkbox", "combobox", "searchbox", "link"}
    assert [n for n in named if not n.get("name", {}).get("value")] == []


def test_the_elements_of_a_value_are_drawn_and_said(show: Show) -> None:
    got = ONE + torch.tensor([0.0, 2.0])
    page = show(report(row(got, picture=picture(ONE, got, ONE.double(), (1,)))))
    page.find(".cause button").click()
    drawn = page.run("return [...document.querySelectorAll('.chart')].map((each) => each.getAttribute('aria-label'))")
    assert drawn == [
        "Values. Histogram of values from 1 to 3",
        "|torch − ONNX|, powers of ten. Histogram of the difference: 1 at 10 to the 0",  # noqa: RUF001
        "Largest |torch − ONNX| along dimension 0. Largest in part 2 of 2",  # noqa: RUF001
    ]
    assert page.texts("#detail .scroll td") == ["[1]", "1", "3", "1"]


def test_neighbours_lead_on(show: Show) -> None:
    code = "y = x * 2"
    page = show(report(row(ONE, fx_node="first"), row(ONE + 1, fx_node="second", operands=("first", "x"), code=code)))
    page.find(".cause button").click()
    assert page.texts(".nodes button, .nodes .soft")[:2] == ["first ✓", "x"]
    assert page.text("#detail pre") == code
    page.find(".nodes button").click()
    assert page.text("#detail h2") == "first"
    assert page.texts(".nodes button") == ["second ✕"]


@pytest.fixture
def changed(driver: Chrome, tmp_path: Path) -> Callable[..., Page]:
    """Opens the page of what changed from report to report."""

    def opened(*reports: Report | dict[str, Any]) -> Page:
        data = [each if isinstance(each, dict) else each.as_json() for each in reports]
        runs = [run_of(each, f"{i}{HOSTILE}.json") for i, each in enumerate(data)]
        (tmp_path / "changes.html").write_text(html.changes_page(runs, courses(runs)), encoding="utf-8")
        return Page(driver, tmp_path / "changes.html")

    return opened


def test_what_changed_between_two_reports(changed) -> None:
    page = changed(graph("a", "b", HOSTILE), graph("a", "b", HOSTILE, bad=2))
    assert page.text("h1") == "Worse"
    assert page.cells("name") == [HOSTILE, "y"]
    assert page.text(".left") == "2 of 4 values"
    assert page.cells("run0") == ["✓ ok 0", "✓ ok 0"]
    assert page.cells("since") == ["2", "2"]
    page.find("input[name=ok]").click()
    page.wait(lambda: page.cells("name") == ["a", "b", HOSTILE, "y"])
    assert page.errors() == []


def test_the_course_of_several_reports(changed) -> None:
    """b departs in the second and third, c in the fourth; the last says who ran it."""
    runs = [graph("a", "b", "c", bad=bad).as_json() for bad in (None, 1, 1, 2)]
    runs[0]["rows"][1].update(noise_floor=None, inherited={**runs[0]["rows"][1]["inherited"], "finding": "1 NaN"})
    runs[3]["environment"] = {"torch": "9.9", "date": "2026-01-02"}
    page = changed(*runs)
    assert page.text("h1") == "Better and worse"
    assert [each.split("\n") for each in page.texts(".tally")] == [
        ["since run 3", "1", "▲ worse", "1", "▼ better", "1", "= same", "1", "✓ ok"],
        ["since run 1", "2", "▲ worse", "1", "▼ better", "1", "✓ ok"],
    ]
    assert page.cells("name") == ["b", "c", "y"]
    assert page.cells("overall") == ["▼ better", "▲ worse", "▲ worse"]
    assert page.cells("since") == ["4", "4", "2"]
    assert page.cells("run0")[0] == "✓ ok ∞"
    assert page.cells("run1")[0].startswith("✕ diverges 1")
    assert page.texts("#runs .file")[1:] == [f"{i}{HOSTILE}.json" for i in range(4)]
    assert page.texts("#runs tbody td:nth-child(6)") == ["", "", "", "9.9"]
    assert page.texts("#runs .badge") == ["✓ agree", *["✕ diverge"] * 3]
    assert page.texts("#runs tbody td:nth-child(3)") == ["0", "2", "2", "2"]
    assert page.texts("#setup tbody td:nth-child(6)") == ["9.9", "2026-01-02"]
    assert page.errors() == []


def test_the_runs_are_walked_by_keyboard_and_lead_to_their_column(changed) -> None:
    page = changed(*(graph("a", "b", bad=i % 2) for i in range(30)))
    assert not page.driver.find_elements("css selector", ".ag-header-cell[col-id=run29]")
    page.run("document.querySelector('#runs .plot').focus()")
    ActionChains(page.driver).send_keys(Keys.ARROW_RIGHT, *[Keys.PAGE_DOWN] * 2).perform()
    said = page.run("return document.getElementById('spoken').textContent")
    assert said.startswith("Run 30, ")
    assert said.endswith("2 departing, ✕ diverge")
    ActionChains(page.driver).send_keys(Keys.ENTER).perform()
    page.wait(lambda: page.cells("run29")[0].startswith("✓ ok"))
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    page.run("dispatchEvent(new Event('beforeprint'))")
    assert len(page.texts(".paper thead th")) == 35
    page.run("dispatchEvent(new Event('afterprint'))")
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {})
    assert page.errors() == []


def test_runs_that_hold_nothing(changed) -> None:
    page = changed(report(outputs=False), report(row(None), outputs=False))
    assert page.text("h1") == "Nothing got worse"
    assert page.texts("#runs tbody td:nth-child(4)") == ["\N{EN DASH}"] * 2
    assert page.cells("name") == ["mul"]
    assert page.errors() == []


TWO = """
<ir_version: 10, opset_import: ["" : 20]>
model (float[2,3] x) => (float[2,3] y) {
    a = Add (x, x)
    b = %s (a)
    y = Mul (b, x)
}
"""


def test_two_models_side_by_side(driver: Chrome, tmp_path: Path) -> None:
    first, second = (onnx.parser.parse_model(TWO % op) for op in ("Sin", "Cos"))
    second.graph.node[1].output[0] = second.graph.node[2].input[0] = HOSTILE
    diff(first, second).to_html(tmp_path / "diff.html")
    page = Page(driver, tmp_path / "diff.html")
    assert page.text("h1") == "Diverge"
    assert page.text(".sentence").startswith(f"{HOSTILE} (Cos): max |first - second| = ")
    assert page.text(".cause h3") == HOSTILE
    assert page.cells("second") == ["x", "a", HOSTILE, "y"]
    page.find("#search").send_keys("cos")
    page.wait(lambda: page.cells("second") == [HOSTILE])
    page.run("document.querySelector('.cause button').click()")
    page.wait(lambda: page.texts(".ag-row-selected [col-id=second]") == [HOSTILE])
    assert page.errors() == []


def test_two_models_that_agree(driver: Chrome, tmp_path: Path) -> None:
    diff(onnx.parser.parse_model(TWO % "Sin"), onnx.parser.parse_model(TWO % "Sin")).to_html(tmp_path / "diff.html")
    page = Page(driver, tmp_path / "diff.html")
    assert page.text("h1") == "Agree"
    assert page.text(".sentence") == "3 computed values paired, and none departs"
    assert page.errors() == []


def test_two_models_that_have_nothing_in_common(driver: Chrome, tmp_path: Path) -> None:
    other = TWO.replace("float[2,3]", "float[5]") % "Exp"
    diff(*map(onnx.parser.parse_model, (TWO % "Sin", other))).to_html(tmp_path / "diff.html")
    page = Page(driver, tmp_path / "diff.html")
    assert page.text("h1") == "Diverge"
    assert "nothing was compared" in page.text(".sentence")
    assert "No value has a partner" in page.text("#error")
    assert len(page.texts("#unpaired tbody tr")) == 8
    assert page.errors() == []


def test_a_report_that_was_edited_shows_what_it_can(driver: Chrome, tmp_path: Path) -> None:
    data = graph("a", "b").as_json()
    data["modules"] = [{"status": 3}]
    data["causes"] = [{"reason": []}]
    (tmp_path / "edited.html").write_text(html.page(data), encoding="utf-8")
    page = Page(driver, tmp_path / "edited.html")
    assert "A part of this report cannot be shown" in page.text("main")
    assert page.cells("fx_node") == ["a", "b"]
    assert page.errors() == []


def test_rows_with_keys_that_no_comparison_writes_are_shown(driver: Chrome, tmp_path: Path) -> None:
    data = graph("a", "b").as_json()
    data["rows"][0].update({"at": 1, "index": "x", "part": [], "words": 0, "__proto__": 1, "__proto__.x": 1, "a.b": 2})
    (tmp_path / "edited.html").write_text(html.page(data), encoding="utf-8")
    page = Page(driver, tmp_path / "edited.html")
    assert page.cells("fx_node") == ["a", "b"]
    page.find("#search").send_keys("b")
    page.wait(lambda: page.text(".left") == "2 of 2 values")  # "backward" holds one too
    assert page.run("return [({}).x, [].b]") == [None, None]
    assert page.errors() == []


def test_torch_numbers_of_every_kind(show: Show) -> None:
    whole = torch.tensor([2**62, 3])
    page = show(report(row(ONE + 1e-30), row(ONE, fx_node="scalar", shape=()), row(whole, fx_node="wrong_dtype")))
    assert page.cells("fx_node") == ["mul", "scalar", "wrong_dtype"]


def test_a_table_of_few_rows_is_no_taller_than_they_are(show: Show) -> None:
    page = show(report(row(INF), row(ONE, fx_node="add")))
    assert page.run("return document.querySelector('.grid').clientHeight") < 64 + 5 * 30 + 24
    assert page.cells("inherited")[0] == "1 inf in ONNX"
    cell = "const cell = document.querySelector('.ag-row [col-id=inherited]'); "
    assert page.run(f"{cell}return cell.scrollWidth - cell.clientWidth") == 0


def test_a_cause_that_inherits_is_explained(show: Show, driver: Chrome, tmp_path: Path) -> None:
    words = "on torch's own operands the op is right"
    assert words not in show(report(row(INF))).text(".cause")
    data = report(row(INF)).as_json()
    data["rows"][0]["status"] = "inherits"
    (tmp_path / "inherits.html").write_text(html.page(data), encoding="utf-8")
    assert words in Page(driver, tmp_path / "inherits.html").text(".cause")
