// The elements of one value: histograms of both sides and of their difference, the worst, and where errors lie.

/** What stands in the panel. */
function pictureParts(found) {
  const sampled = found.looked_at < found.numel ? `${found.looked_at.toLocaleString("en")} of ${found.numel.toLocaleString("en")} elements, evenly spread` : `all ${count(found.numel, "element")}`;
  const apart = found.looked_at - found.equal;
  return [
    make("p", { class: "hint" }, `Of ${sampled}: ${found.equal.toLocaleString("en")} equal, ${apart.toLocaleString("en")} differ${found.unfinite ? `, ${found.unfinite.toLocaleString("en")} of them NaN or inf on one side` : ""}.`),
    found.high > found.low ? bothSides(found) : null,
    found.powers.length ? difference(found) : null,
    found.worst.length ? worstElements(found) : null,
    ...found.along.map((parts, dimension) => (parts.length > 1 && apart ? alongDimension(parts, dimension) : null)),
  ];
}

function bothSides({ low, high, torch, onnx }) {
  const width = (high - low) / torch.length, x = torch.map((_, i) => low + i * width);
  const legend = make("span", { class: "soft" }, make("span", { class: "sign local", "aria-hidden": "true" }, "▬"), " torch ", make("span", { class: "sign inherited", "aria-hidden": "true" }, "┅"), " ONNX");
  return bars("Values", legend, `Histogram of values from ${number(low)} to ${number(high)}`, [[...x, high], [...torch, 0], [...onnx, 0]], [
    { stroke: () => colour("local"), fill: () => colour("chosen"), width: 1.5, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } },
    { stroke: () => colour("inherited"), width: 2, dash: [3, 3], paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } },
  ], (value) => number(value));
}

function difference({ powers }) {
  const [first, last] = [powers[0][0], powers.at(-1)[0]];
  const counts = new Map(powers), x = Array.from({ length: last - first + 1 }, (_, i) => first + i);
  return bars("|torch − ONNX|, powers of ten", null, `Histogram of the difference: ${powers.map(([power, many]) => `${many} at 10 to the ${power}`).join(", ")}`,
    [x, x.map((power) => counts.get(power) ?? 0)], [column("diverges")], (value) => (Number.isInteger(value) ? `1e${value}` : ""));
}

function alongDimension(parts, dimension) {
  const numbers = parts.map((value) => (typeof value === "number" ? value : null));
  const least = Math.max(...numbers.filter((value) => value !== null), 0);
  const drawn = parts.map((value) => (typeof value === "number" ? value : least * 1.2 || 1));
  const where = parts.indexOf(parts.find((value) => typeof value !== "number")) + 1 || numbers.indexOf(least) + 1;
  return bars(`Largest |torch − ONNX| along dimension ${dimension}`, null, `Largest in part ${where} of ${parts.length}`,
    [parts.map((_, i) => i), drawn], [column("diverges")], (value) => (Number.isInteger(value) ? String(value) : ""));
}

function column(name) {
  return { stroke: () => colour(name), fill: () => colour(name), width: 0, paths: uPlot.paths.bars({ size: [0.9, 60] }), points: { show: false } };
}

/** A small chart with a heading; what it shows is said in words too. */
function bars(title, legend, spoken, data, series, label) {
  const area = make("div", { class: "chart", role: "img", "aria-label": `${title}. ${spoken}` });
  const axis = { stroke: () => colour("soft"), grid: { show: false }, ticks: { stroke: () => colour("line"), size: 4 }, font: "11px system-ui, sans-serif" };
  const [low, high] = [data[0][0], data[0].at(-1)], edge = series.length > 1 ? 0 : 0.6;
  area.chart = new uPlot({
    width: 480, height: 130, legend: { show: false }, cursor: { show: false },
    scales: { x: { time: false, range: () => [low - edge, high + edge] }, y: { range: (_, __, top) => [0, top * 1.05 || 1] } },
    axes: [{ ...axis, size: 26, values: (_, splits) => splits.map(label) }, { ...axis, size: 54, values: (_, splits) => splits.map(compact) }],
    series: [{}, ...series],
  }, data, area);
  return make("div", {}, make("h4", {}, title, " ", legend), area);
}

function worstElements({ worst }) {
  const text = (value) => (typeof value === "number" ? String(Number.isSafeInteger(value) ? value : Number(value.toPrecision(7))) : value ?? "–");
  return table("The worst elements", [["index", (each) => `[${each.index.join(", ")}]`, "code"], ["torch", (each) => text(each.torch), "number"], ["ONNX", (each) => text(each.onnx), "number"],
    ["float64", (each) => text(each.exact), "number"]], worst);
}
