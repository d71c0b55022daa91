// Two ONNX models side by side: the pairs of their values, and what has no partner.

const PAIRS = ["diverges", "inherits", "noise", "equal", "random"];
Object.assign(MARKS, { equal: "=", noise: "≈", random: "~" });

function readDiff() {
  const { rows, ...rest } = JSON.parse(document.getElementById("report").textContent);
  const report = cleaned(rest);
  report.pairs = rowsOf(rows, "pairs");
  report.pairs.forEach((row, i) => {
    row.index = i;
    row.part = "second model";
    row.noise_floor ||= null;
    row.localRatio = inFloors(row.local, row.noise_floor);
    row.inheritedRatio = row.noise_floor || row.inherited.max_abs === 0 ? inFloors(row.inherited, row.noise_floor) : null;
    row.words = [row.first, row.second, ...row.op_types, row.how, ...row.dtypes].join("\n").toLowerCase();
  });
  return report;
}

/** What makes a value of the second model. */
function madeBy(row) {
  return row.op_types[1] || "input or constant";
}

function lastOf(nodes) {
  return `${nodes.length > 5 ? "… " : ""}${nodes.slice(-5).join(", ")}`;
}

const DIFFERENCES = {
  units: { relative: "over the largest element", absolute: "absolute", floors: "in noise floors (1 is where a node departs)" },
  series: [
    { key: "inherited", name: "inherited", sign: "–", why: "each model on its own earlier values", of: (row, unit) => error(row, "inherited", unit) },
    { key: "local", name: "local", sign: "●", why: "the second model's node on the first one's operands", of: (row, unit) => error(row, "local", unit) },
    { key: "diverges", name: "diverges", sign: "✕", why: "beyond what rounding explains", of: (row, unit) => (row.status === "diverges" ? error(row, row.local ? "local" : "inherited", unit) : null) },
    { key: "floor", name: "noise floor", sign: "┄", why: "what rounding explains", of: (row, unit) => (row.noise_floor ? floor(row, unit) : null) },
  ],
  lines: (row) => [make("strong", {}, row.second), make("span", {}, `${madeBy(row)} · ${row.first}`),
    make("span", {}, `local ${gap(row.local)}, inherited ${gap(row.inherited)}, floor ${number(row.noise_floor)}`), badge(row.status)],
};

const DIFF_COLUMNS = [
  { headerName: "Verdict", children: [
    { headerName: "#", field: "index", width: 74, cellClass: "number" },
    { headerName: "Status", field: "status", width: 112, cellRenderer: ({ value }) => badge(value) },
  ] },
  { headerName: "First model", children: [
    { headerName: "Value", field: "first", width: 200, cellClass: "code" },
    { headerName: "Op", colId: "first_op", width: 130, valueGetter: ({ data }) => data.op_types[0] },
  ] },
  { headerName: "Second model", children: [
    { headerName: "Value", field: "second", width: 200, cellClass: "code" },
    { headerName: "Op", colId: "second_op", width: 130, valueGetter: ({ data }) => data.op_types[1] },
    { headerName: "dtype", colId: "dtype", width: 90, valueGetter: ({ data }) => [...new Set(data.dtypes)].join(" / ") },
    { headerName: "Shape", colId: "shape", width: 130, valueGetter: ({ data }) => [...new Set(data.shapes.map(shapeText))].join(" / ") },
  ] },
  { headerName: "Pair", children: [{ headerName: "Found by", field: "how", width: 110 }] },
  { headerName: "max |first − second|", children: [
    { headerName: "Inherited", ...NUMERIC, ...ofDistance("inherited") },
    { headerName: "Local", ...NUMERIC, ...ofDistance("local") },
    { headerName: "Noise floor", field: "noise_floor", width: 110, ...NUMERIC },
    { headerName: "Local, in floors", colId: "floors", width: 130, ...NUMERIC, valueGetter: ({ data }) => data.localRatio },
  ] },
];

const DIFF_PAPER = [
  ["", (row) => badge(row.status)], ["first", (row) => row.first, "code"], ["second", (row) => row.second, "code"], ["op", (row) => row.op_types[1]],
  ["inherited", (row) => gap(row.inherited), "number"], ["local", (row) => gap(row.local), "number"], ["floor", (row) => number(row.noise_floor), "number"],
];

function diffVerdict(report) {
  const isGood = report.verdict === "agree", first = report.causes[0];
  const many = (status) => report.pairs.filter((row) => row.status === status).length;
  const tally = PAIRS.filter(many).map((status) => make("li", {}, make("strong", {}, many(status).toLocaleString("en")), badge(status)));
  return make("section", { id: "verdict", class: `verdict ${isGood ? "good" : "bad"}`, "aria-labelledby": "verdict-title" },
    make("p", { class: "sign", "aria-hidden": "true" }, isGood ? "✓" : "✕"),
    make("div", {}, make("h1", { id: "verdict-title" }, isGood ? "Agree" : "Diverge"), make("p", { class: "sentence" }, first ? `${first.second} (${madeBy(first)}): ${report.reason}` : report.reason),
      make("ul", { class: "tally", "aria-label": "Pairs by status" }, tally)));
}

/** Each cause: the nodes of both models that make it, and what it reads. */
function causesOfDiff(report, open) {
  if (!report.causes.length) return null;
  const card = (cause) => make("article", { class: "cause" },
    make("header", {}, make("h3", { class: "code" }, cause.second), make("span", { class: "code soft" }, madeBy(cause)),
      make("button", { type: "button", onclick: () => open(report.pairs.find((row) => row.second === cause.second)) }, "Row")),
    make("p", {}, cause.reason),
    facts([["Paired with", make("span", { class: "code" }, cause.first)], ["Found by", cause.how], ["Local error", cause.local ? gap(cause.local) : null],
      ["Inherited error", gap(cause.inherited)], ["Noise floor", number(cause.noise_floor)],
      ...["first", "second"].map((side, i) => [`Made in the ${side} by`, cause.nodes[i].length ? make("span", { class: "code" }, lastOf(cause.nodes[i])) : null])]),
    cause.operands.length ? table("What it reads", [["value", (each) => each.name || "nothing", "code"], ["partner", (each) => each.partner || "none", "code"],
      ["in the first model's place", (each) => each.expected, "code"], ["", (each) => (each.status ? badge(each.status) : "")]], cause.operands) : null);
  const shown = report.causes.slice(0, 20), left = report.causes.length - shown.length;
  return section("causes", report.causes.length === 1 ? "The cause" : `The ${report.causes.length} causes`,
    make("div", { class: "causes" }, shown.map(card)), left ? make("p", {}, `and ${left.toLocaleString("en")} more, which the table lists as ✕ diverges`) : null);
}

function unpairedSection(report) {
  if (!report.unpaired.length) return null;
  return section("unpaired", "Without a partner", table("Values of one model that the other has not", [
    ["model", (each) => each.model], ["value", (each) => each.name, "code"], ["op", (each) => each.op_type], ["why", (each) => each.reason]], report.unpaired));
}

function modelsSection(report) {
  return section("setup", "Setup", facts([["First", make("span", { class: "code" }, report.models[0])], ["Second", make("span", { class: "code" }, report.models[1])], ["Inputs", report.inputs.join(", ") || "none"]]),
    report.notes.length ? make("ul", {}, report.notes.map((note) => make("li", {}, note))) : null);
}
