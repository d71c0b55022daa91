// One value: what it is, how far apart, what it reads and who reads it, and how to show it to others.

/** The panel; `show` fills it, `close` empties it. Buttons in it lead to other values by `open`. */
function makeDetail(report, { open, closed }) {
  const panel = document.getElementById("detail");
  const readers = readersOf(report.values);
  let row = null;
  const step = (by) => { const next = report.values[row.index + by]; if (next) open(next, true); };
  const close = () => { const last = row; row = null; panel.hidden = true; panel.querySelectorAll(".chart").forEach((area) => area.chart.destroy()); panel.replaceChildren(); document.body.classList.remove("has-detail"); closed(last); };
  panel.addEventListener("keydown", (event) => { if (event.key === "Escape") { close(); event.stopPropagation(); } });
  const show = (wanted, hasFocus) => {
    row = wanted;
    panel.querySelectorAll(".chart").forEach((area) => area.chart.destroy());
    const heading = make("h2", { tabindex: "-1" }, row.fx_node);
    const button = (name, text, act, isOff) => make("button", { type: "button", "aria-label": name, title: name, onclick: act, disabled: isOff }, text);
    panel.replaceChildren(
      make("div", { class: "bar" }, badge(row.status), make("span", { class: "grow" }, row.part),
        button("Value before", "←", () => step(-1), row.index === 0), button("Value after", "→", () => step(1), row.index === report.values.length - 1),
        button("Close (Esc)", "✕", close)),
      heading, make("p", { class: "code soft" }, row.target), make("p", { class: "finding" }, meaning(row)),
      ...sectionsOf(report, row, readers, open));
    panel.hidden = false;
    panel.scrollTop = 0;
    document.body.classList.add("has-detail");
    if (hasFocus) heading.focus({ preventScroll: true });
  };
  return { show, close, current: () => row };
}

/** What the status says, in a sentence. */
function meaning(row) {
  if (row.status === "unaligned") return `Not compared: ${row.reason ?? "no ONNX value stands for it"}.`;
  const finding = row.reason ?? row.local?.finding ?? row.inherited?.finding;
  const floors = row.localRatio === null ? "" : ` Its local error is ${number(row.localRatio)} noise floors.`;
  const further = whoIsFurther(row);
  return {
    ok: `What ONNX Runtime computes here is torch's value, but for rounding.${floors}`,
    inherits: `The op is right; its value departs because of what came before.${floors}`,
    diverges: `The op departs by itself${finding ? `: ${finding}` : ""}.${finding ? "" : floors}${further}`,
  }[row.status] ?? "";
}

function whoIsFurther(row) {
  const torch = row.local_torch_vs_float64 ?? row.torch_vs_float64, onnx = row.local_onnx_vs_float64 ?? row.onnx_vs_float64;
  if (typeof torch !== "number" || typeof onnx !== "number" || hidesElements(row)) return "";
  return onnx > torch ? ` ONNX is further from float64 (${number(onnx)} against ${number(torch)}).` : ` torch is further from float64 (${number(torch)} against ${number(onnx)}).`;
}

/** Whether some elements have no distance, so that the others alone do not say who is right. */
function hidesElements(measured) {
  return Boolean(measured.inherited?.finding ?? measured.local?.finding);
}

function sectionsOf(report, row, readers, open) {
  const section = (title, ...parts) => make("section", {}, make("h3", {}, title), ...parts);
  return [
    section("Where", facts([
      ["Source", make("span", { class: "code" }, row.source || "unknown")], ["Module", row.module || "(model)"],
      ["Value", `${row.dtype} ${shapeText(row.shape)}`], ["Computed in", row.computed_in], ["Held in", row.held_in], ["Result of", row.call === row.fx_node ? null : row.call],
    ]), row.code ? make("pre", {}, row.code) : null),
    section("How far apart", errorTable(row)),
    section("From float64", float64Table(row)),
    section("In the graphs", around(report, row, readers, open)),
    row.picture ? part(() => section("Elements", ...pictureParts(row.picture))) : null,
    section("Show it to others", ...repro(report, row)),
    section("All that the report holds of it", make("details", {}, make("summary", {}, "JSON"), make("pre", {}, JSON.stringify(asData(row), null, 1)))),
  ].filter(Boolean);
}

function errorTable(row) {
  const kinds = [["inherited", "own earlier values"], ["local", "torch's operands"]].filter(([name]) => row[name]);
  if (!kinds.length) return make("p", {}, "Nothing was held against it.");
  const line = (name, of) => make("tr", {}, make("th", { scope: "row" }, name), kinds.map(([kind]) => make("td", { class: "number" }, of(row[kind]))));
  return make("table", { "aria-label": "How far apart" },
    make("thead", {}, make("tr", {}, make("td", {}), kinds.map(([kind, why]) => make("th", { scope: "col", class: "number" }, kind, make("small", {}, why))))),
    make("tbody", {}, line("max", (d) => number(d.max_abs)), line("mean", (d) => number(d.mean_abs)), line("max, over the largest element", (d) => number(d.max_rel)),
      line("cosine", (d) => (typeof d.cosine === "number" ? String(Number(d.cosine.toPrecision(9))) : "–")),
      line("elements that differ", (d) => `${(d.different ?? 0).toLocaleString("en")} of ${d.numel.toLocaleString("en")}`),
      line("worst element", (d) => (d.worst ? `[${d.worst.join(", ")}]` : "–")),
      kinds.some(([kind]) => row[kind].finding) ? line("finding", (d) => d.finding ?? "–") : null,
      make("tr", {}, make("th", { scope: "row" }, "noise floor"), make("td", { class: "number", colspan: kinds.length }, number(row.noise_floor)))));
}

function float64Table(row) {
  const lines = [["own earlier values", row.torch_vs_float64, row.onnx_vs_float64], ["torch's operands", row.local_torch_vs_float64, row.local_onnx_vs_float64]];
  const known = lines.filter(([, torch, onnx]) => typeof torch === "number" || typeof onnx === "number");
  if (!known.length) return make("p", {}, "Not measured: the value has no float64 counterpart.");
  const isFurther = (own, other) => own > other && !hidesElements(row);
  const cell = (own, other) => make("td", { class: `number${isFurther(own, other) ? " further" : ""}` }, number(own), isFurther(own, other) ? make("small", {}, "further") : null);
  return make("table", { "aria-label": "From float64" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, `max |value − float64|${hidesElements(row) ? " of finite elements" : ""} on`), make("th", { scope: "col", class: "number" }, "torch"), make("th", { scope: "col", class: "number" }, "ONNX"))),
    make("tbody", {}, known.map(([name, torch, onnx]) => make("tr", {}, make("th", { scope: "row" }, name), cell(torch, onnx), cell(onnx, torch)))));
}

/** By part of the report and FX node, the rows that read it. */
function readersOf(values) {
  const found = new Map();
  for (const row of values) {
    for (const name of row.operands ?? []) {
      const key = `${row.part}\n${name}`;
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(row);
    }
  }
  return found;
}

function around(report, row, readers, open) {
  const of = (name) => report.values.find((each) => each.part === row.part && each.fx_node === name);
  const list = (title, items) => make("div", {}, make("h4", {}, title), items.length ? make("ul", { class: "nodes" }, items) : make("p", { class: "soft" }, "none"));
  const leading = (found, name) => make("li", {}, found
    ? make("button", { type: "button", class: "code", onclick: () => open(found, true) }, name, make("span", { class: "mark" }, ` ${MARKS[found.status]}`))
    : make("span", { class: "code soft" }, name));
  const onnx = (row.onnx_nodes ?? []).map((name, i) => make("li", {}, make("strong", {}, row.op_types[i] ?? ""), make("span", { class: "code soft" }, ` ${name}`)));
  const fused = (row.fused ?? []).map((name) => leading(of(name), name));
  const reads = row.operands ? list("FX: reads", row.operands.map((name) => leading(of(name), name))) : null;
  const readBy = row.operands ? list("FX: read by", (readers.get(`${row.part}\n${row.fx_node}`) ?? []).map((each) => leading(each, each.fx_node))) : null;
  return make("div", { class: "around" }, reads, readBy, list(`ONNX: makes ${row.onnx_value ?? "nothing"}`, onnx), fused.length ? list("in place of FX", fused) : null);
}

function repro(report, row) {
  if (row.model === "optimized") return [make("p", {}, "The value of an optimized model: ", make("code", {}, "dort-compare bisect DUMP"), " says which optimizer departs.")];
  const dump = report.settings?.dump;
  const command = `dort-compare repro ${quoted(dump ?? "DUMP")} ${quoted(row.call ?? row.fx_node)} --graph ${row.graph} --out bug`;
  const copy = make("button", { type: "button", onclick: () => navigator.clipboard.writeText(command).then(() => say("Copied")) }, "Copy");
  return [make("pre", {}, command), copy, dump ? null : make("p", { class: "soft" }, "DUMP is the folder that compare(..., dump=FOLDER) or --dump FOLDER leaves.")];
}

function quoted(word) {
  return /^[\w./:@%+=-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function asData({ index, part, words, localRatio, inheritedRatio, worstRatio, ...data }) {
  return data;
}
