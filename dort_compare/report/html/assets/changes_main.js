// Puts the page of changes together.

function main() {
  const report = readChanges(), { runs, changes } = report;
  const page = document.getElementById("main");
  document.title = "Changes - dort-compare";
  let api = null;
  const filters = makeBoxes(changes, { title: "Change", hint: "Name, op, module, source", kinds: CHANGES, kindOf: (row) => row.kind, off: ["ok"] }, () => api?.onFilterChanged());
  const element = make("div", { class: "grid", role: "region", "aria-label": "What changed" });
  api = agGrid.createGrid(element, {
    ...gridOptions(changes, filters, element),
    columnDefs: changeColumns(runs),
    localeText: { noRowsToShow: changes.length ? "Nothing changed" : "No report holds a value" },
  });
  const values = section("values", "What changed", filters.element, element);
  const worst = makeChart(runs, WORST, (run) => { api.ensureColumnVisible(`run${run.index}`, "middle"); values.scrollIntoView(); });
  const plot = makePlot(changes, oldAndNew(runs), (row) => reveal(api, row, filters.all));
  page.replaceChildren(changesVerdict(report), runsSection(runs, worst), section("error", "Error along the graph", changes.length ? plot.element : make("p", {}, "No report holds a value.")), values, setups(runs));
  contents(page);
  onSlash(() => filters.focus());
  printed(values, changesPaper(runs), () => shownIn(api).sort((one, other) => CHANGES.indexOf(one.kind) - CHANGES.indexOf(other.kind)), () => { plot.redraw(); worst.redraw(); });
}

main();
