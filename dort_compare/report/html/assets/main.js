// Puts the page together.

function main() {
  const report = read();
  const page = document.getElementById("main");
  document.title = `${report.verdict} - dort-compare`;
  let grid = null, plot = null;
  const filters = makeFilters(report, () => grid?.refresh());
  const detail = makeDetail(report, {
    open: (row, hasFocus) => open(row, hasFocus),
    closed: (row) => { plot?.mark(null); grid.focus(row); },
  });
  const show = (row, hasFocus) => { detail.show(row, hasFocus); plot?.mark(row); };
  const open = (row, hasFocus) => { show(row, hasFocus); grid.reveal(row); };

  grid = makeGrid(report, filters, show, (row) => { if (detail.current() && detail.current() !== row) show(row, false); });
  const values = section("values", "Values, side by side", filters.element, grid.element);
  page.replaceChildren(...[
    part(() => verdictSection(report)), part(() => causesSection(report, open)), section("error", "Error along the graph"), values,
    part(() => outputsSection(report)), part(() => modulesSection(report, filters)), part(() => precisionSection(report, open)),
    part(() => elsewhereSection(report)), part(() => setupSection(report)),
  ].filter(Boolean));
  const place = document.getElementById("error");
  if (report.values.some((row) => row.inherited)) {
    plot = makePlot(report.values, ERRORS, open);
    place.append(plot.element);
  } else {
    place.append(make("p", {}, report.values.length ? "No value was held against another: there is no error to draw." : "No value was compared: the report holds no row."));
  }
  contents(page);
  onSlash(() => filters.focus());
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && detail.current()) detail.close(); });
  printed(values, PAPER, () => grid.shown().sort((one, other) => STATUSES.indexOf(one.status) - STATUSES.indexOf(other.status)), () => plot?.redraw());
}
/** A part of the page, or, of a report that was edited into what no comparison writes, a line in its place. */
function part(build) {
  try {
    return build();
  } catch (problem) {
    return make("p", { class: "soft" }, `A part of this report cannot be shown: ${problem.message}`);
  }
}

main();
