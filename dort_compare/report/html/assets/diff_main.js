// Puts the page of two models together.

function main() {
  const report = readDiff();
  const page = document.getElementById("main");
  document.title = `${report.verdict} - dort-compare diff`;
  let api = null;
  const filters = makeBoxes(report.pairs, { title: "Status", hint: "Name, op, dtype", kinds: PAIRS, kindOf: (row) => row.status }, () => api?.onFilterChanged());
  const element = make("div", { class: "grid", role: "region", "aria-label": "Values side by side" });
  api = agGrid.createGrid(element, {
    ...gridOptions(report.pairs, filters, element),
    columnDefs: DIFF_COLUMNS,
    localeText: { noRowsToShow: report.pairs.length ? "No value passes the filters" : "No value has a partner" },
  });
  const open = (row) => reveal(api, row, filters.all);
  const plot = makePlot(report.pairs, DIFFERENCES, open);
  const values = section("values", "Values, side by side", filters.element, element);
  page.replaceChildren(...[
    diffVerdict(report), causesOfDiff(report, open),
    section("error", "Error along the graph", report.pairs.length ? plot.element : make("p", {}, "No value has a partner: there is no error to draw.")),
    values, unpairedSection(report), modelsSection(report),
  ].filter(Boolean));
  contents(page);
  onSlash(() => filters.focus());
  printed(values, DIFF_PAPER, () => shownIn(api).sort((one, other) => PAIRS.indexOf(one.status) - PAIRS.indexOf(other.status)), () => plot.redraw());
}

main();
