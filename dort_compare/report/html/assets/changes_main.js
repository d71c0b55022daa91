// Puts the page of changes together.

function main() {
  const report = readChanges();
  const page = document.getElementById("main");
  document.title = "Changes - dort-compare";
  let api = null;
  const filters = makeBoxes(report.changes, { title: "Change", hint: "Name, op, module, source", kinds: CHANGES, kindOf: (row) => row.change, off: ["same"] }, () => api?.onFilterChanged());
  const element = make("div", { class: "grid", role: "region", "aria-label": "What changed" });
  api = agGrid.createGrid(element, {
    ...gridOptions(report.changes, filters),
    columnDefs: CHANGE_COLUMNS,
    localeText: { noRowsToShow: report.changes.length ? "Nothing changed" : "Neither report holds a value" },
  });
  const plot = makePlot(report.changes, OLD_AND_NEW, (row) => reveal(api, row, filters.all));
  const values = section("values", "What changed", filters.element, element);
  page.replaceChildren(changesVerdict(report), section("error", "Error along the graph", report.changes.length ? plot.element : make("p", {}, "Neither report holds a value.")), values, setups(report));
  contents(page);
  onSlash(() => filters.focus());
  printed(values, CHANGES_PAPER, () => shownIn(api).sort((one, other) => CHANGES.indexOf(one.change) - CHANGES.indexOf(other.change)), () => plot.redraw());
}

main();
