// Errors along the graph: a mark for every value, in the order in which they ran, and what of them is shown.

/** The chart with its controls; of the chart's series each also has a name, a sign for the legend and why it is there. */
function makePlot(rows, given, open) {
  const { series, units } = given;
  const chart = makeChart(rows, { ...given, label: "Error along the graph. Left and right move from value to value, Enter opens one, plus and minus zoom. The table holds the same." }, open);
  const parts = partsOf(rows).map(({ name, first, last }) => make("button", { type: "button", onclick: () => chart.zoom(first, last) }, name));
  const buttons = make("div", { class: "buttons", role: "group", "aria-label": "Zoom" },
    make("button", { type: "button", onclick: () => chart.scaled(0.5), "aria-label": "Zoom in" }, "+"),
    make("button", { type: "button", onclick: () => chart.scaled(2), "aria-label": "Zoom out" }, "−"),
    make("button", { type: "button", onclick: chart.whole }, "Whole"), parts.length > 1 ? parts : null);
  const choices = make("select", { onchange: (event) => chart.change(event.target.value) },
    Object.entries(units).map(([key, name]) => make("option", { value: key }, name)));
  const legend = make("fieldset", { class: "legend" }, make("legend", {}, "Shown"), series.map(({ key, name, sign, why }, i) => make("label", { title: why },
    make("input", { type: "checkbox", checked: true, onchange: (event) => chart.show(i, event.target.checked) }),
    make("span", { class: `sign ${key}`, "aria-hidden": "true" }, sign), ` ${name}`)));
  const element = make("div", {}, make("div", { class: "controls" }, buttons, make("label", {}, make("span", {}, "Error"), choices), legend), chart.element,
    make("p", { class: "hint" }, "Drag to zoom, double-click for the whole, click a value to go to its row. Values stand in the order in which they ran."));
  return { element, mark: chart.mark, redraw: chart.redraw };
}
