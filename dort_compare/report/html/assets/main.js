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
    verdictSection(report), causesSection(report, open),
    section("error", "Error along the graph"), values,
    outputsSection(report), modulesSection(report, filters), precisionSection(report, open), elsewhereSection(report), setupSection(report),
  ].filter(Boolean));
  const place = document.getElementById("error");
  if (report.values.some((row) => row.inherited)) {
    plot = makePlot(report, (row, hasFocus) => open(row, hasFocus));
    place.append(plot.element);
  } else {
    place.append(make("p", {}, report.values.length ? "No value was held against another: there is no error to draw." : "No value was compared: the report holds no row."));
  }
  const titles = [...page.querySelectorAll("section[id] > h2")].map((heading) => make("a", { href: `#${heading.parentElement.id}` }, heading.textContent));
  document.getElementById("sections").append(make("a", { href: "#verdict" }, "Verdict"), ...titles);

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, select, textarea");
    if (event.key === "/" && !isTyping) { event.preventDefault(); filters.focus(); }
    if (event.key === "Escape" && detail.current()) detail.close();
  });
  printed(page, values, () => grid.shown(), () => plot?.redraw());
}

/** On paper the light colours, and a plain table in the place of the one that scrolls. */
function printed(page, values, shown, redraw) {
  const limit = 500;
  let paper = null;
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add("printing");
    redraw();
    const rows = shown();
    paper = make("div", { class: "paper" }, table(`${count(rows.length, "value")}${rows.length > limit ? `, the first ${limit}` : ""}`, [
      ["", (row) => badge(row.status)], ["graph", (row) => row.part], ["FX node", (row) => row.fx_node, "code"], ["op", (row) => row.target, "code"], ["ONNX value", (row) => row.onnx_value, "code"],
      ["inherited", (row) => gap(row.inherited), "number"], ["local", (row) => gap(row.local), "number"], ["floor", (row) => number(row.noise_floor), "number"], ["source", (row) => row.source, "code"],
    ], rows.slice(0, limit), limit));
    values.append(paper);
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("printing");
    paper?.remove();
    redraw();
  });
}

main();
