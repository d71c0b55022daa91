// What stands below the values: outputs and gradients, modules, half precision, what ran elsewhere, the setup.

function section(id, title, ...parts) {
  return make("section", { id, "aria-labelledby": `${id}-title` }, make("h2", { id: `${id}-title` }, title), ...parts);
}

function outputsSection(report) {
  if (!report.outputs.length) return null;
  const many = new Set(report.outputs.map((row) => row.backend)).size > 1;
  const ranked = [...report.outputs].sort((one, other) => one.ok - other.ok);
  return section("outputs", "Outputs and gradients", table("The compiled model against plain eager", [
    ["", (row) => badge(row.distance?.equal ? "equal" : row.ok ? "ok" : "diverges")], ...(many ? [["backend", (row) => row.backend]] : []),
    ["kind", (row) => row.kind], ["name", (row) => row.name, "code"], ["dtype", (row) => row.dtype], ["shape", (row) => shapeText(row.shape)],
    ["max |eager − compiled|", (row) => (row.distance ? gap(row.distance) : "on one side only"), "number"], ["over the largest", (row) => number(row.distance?.max_rel), "number"],
    ["noise floor", (row) => number(row.noise_floor), "number"], ["eager from float64", (row) => number(row.torch_vs_float64), "number"], ["compiled from float64", (row) => number(row.onnx_vs_float64), "number"],
  ], ranked));
}

function modulesSection(report, filters) {
  const named = report.by_module.filter((each) => each.module);
  const before = report.modules;
  if (!named.length && !before.length) return null;
  return section("modules", "Modules", named.length ? moduleTree(report.by_module, filters) : null, before.length ? beforeOnnx(before) : null);
}

/** A module with those in it, opened where something is not ok. */
function moduleTree(modules, filters) {
  const lines = make("div", { class: "tree" }, make("div", { class: "line head", "aria-hidden": "true" },
    ["module", "values", "diverge", "inherit", "worst local, in floors", ""].map((name) => make("span", {}, name))));
  const holders = new Map([[null, lines]]);
  for (const each of modules) {
    const outer = each.module === "" ? null : holders.has(outerOf(each.module)) ? outerOf(each.module) : "";
    const hasMore = modules.some((other) => other.module !== each.module && within(other.module, each.module));
    const line = moduleLine(each, filters);
    const node = hasMore ? make("details", { open: each.module === "" || each.diverging > 0 }, make("summary", {}, line)) : make("div", { class: "leaf" }, line);
    holders.get(outer).append(node);
    holders.set(each.module, node);
  }
  return lines;
}

function outerOf(path) {
  return path.includes(".") ? path.slice(0, path.lastIndexOf(".")) : "";
}

function moduleLine(each, filters) {
  const spoken = (text, unit) => make("span", { class: "number" }, text, make("span", { class: "spoken" }, ` ${unit}`));
  const go = make("button", { type: "button", "aria-label": `Show the values of ${each.module || "the model"}`, onclick: (event) => {
    event.preventDefault();
    filters.set({ module: each.module });
    document.getElementById("values").scrollIntoView();
  } }, "values");
  return make("span", { class: `line${each.diverging ? " bad" : ""}` }, make("span", { class: "code name" }, each.module || "(model)"),
    spoken(each.values.toLocaleString("en"), "values"), spoken(each.diverging ? `✕ ${each.diverging}` : "0", "diverge"), spoken(each.inheriting ? `↳ ${each.inheriting}` : "0", "inherit"),
    spoken(number(each.worst), "noise floors at worst"), go);
}

function beforeOnnx(rows) {
  const order = { diverges: 0, unaligned: 1, ok: 2 };
  const ranked = [...rows].sort((one, other) => order[one.status] - order[other.status]);
  return make("div", {}, make("h3", {}, "Before ONNX"), make("p", { class: "hint" }, "Results of modules and their gradients: plain eager against the traced graphs, both on torch's kernels."),
    table("Before ONNX", [
      ["", (row) => badge(row.status)], ["module", (row) => (row.module || "(model)") + row.leaf, "code"], ["call", (row) => String(row.call), "number"], ["kind", (row) => row.kind],
      ["dtype", (row) => row.dtype], ["shape", (row) => shapeText(row.shape)], ["max |eager − graph|", (row) => gap(row.distance), "number"], ["noise floor", (row) => number(row.noise_floor), "number"],
      ["why, or where it enters", (row) => row.reason ?? [row.cause, row.fx_nodes.join(" "), row.source].filter(Boolean).join(" · ")],
    ], ranked, 50));
}

function precisionSection(report, open) {
  const { casts, ranges, half_values: many, closest } = report.precision;
  if (!many && !casts.length) return null;
  const to = (each) => {
    const row = report.values.find((value) => value.model === "lowered" && value.graph === each.graph && value.fx_node === each.fx_node);
    return row ? make("button", { type: "button", class: "code", onclick: () => open(row, true) }, each.fx_node) : each.fx_node;
  };
  const where = [["graph", (each) => `${each.phase} ${each.graph}`], ["FX node", to], ["op", (each) => each.target, "code"], ["module", (each) => each.module], ["source", (each) => each.source, "code"]];
  const share = (value) => (value ? `${(100 * value).toPrecision(3)} %` : "0");
  const finding = (each) => (each.finding ? `${each.finding}${each.inherits ? " (from an operand)" : ""}` : "–");
  return section("precision", "Half precision",
    make("p", {}, `${count(many, "half-precision value")}, ${count(casts.length, "change")} of dtype.`,
      closest ? ` Closest to the end of its range: ${closest.fx_node}, whose largest element ${number(closest.largest)} leaves ${number(closest.head_room)} powers of two of ${closest.dtype}.` : ""),
    suggestionPart(report.suggest_fp32),
    ranges.length ? table("Values with a finding", [["finding", finding], ...where, ["run", (each) => each.run ?? 1, "number"], ["dtype", (each) => each.dtype], ["largest", (each) => number(each.largest), "number"],
      ["head-room, powers of two", (each) => number(each.head_room), "number"], ["overflowed", (each) => share(each.overflowed), "number"], ["underflowed", (each) => share(each.underflowed), "number"], ["wrong", (each) => share(each.wrong), "number"]],
    [...ranges].sort((one, other) => one.inherits - other.inherits), 50) : make("p", {}, "No value overflows, underflows or loses all its digits."),
    casts.length ? table("Changes of dtype", [["from", (each) => each.from_dtype], ["to", (each) => each.to_dtype], ...where], casts, 50) : null);
}

function suggestionPart(found) {
  if (!found) return null;
  return make("div", { class: "note" }, make("h3", {}, "To keep in float32"), make("p", {}, `${found.mend}: ${found.reason}`),
    found.loss_scale ? make("p", {}, `Multiply the loss by ${found.loss_scale} and divide the gradients by it (GradScaler).`) : null,
    found.nodes.length ? make("ul", {}, found.nodes.map((node) => make("li", {}, make("span", { class: "code" }, `${node.phase} ${node.fx_node} (${node.target})`), ` ${[node.module, node.source].filter(Boolean).join(" at ")}`))) : null);
}

function elsewhereSection(report) {
  const { fallbacks, observer, fused_away: fused, graph_breaks: breaks } = report;
  const repeated = report.graphs.filter((graph) => graph.ran > graph.compared);
  const changed = observer.filter((seen) => !seen.distance.equal);
  const outputs = (some) => new Set(some.map((seen) => `${seen.graph} ${seen.output}`)).size;
  if (!fallbacks.length && !breaks.length && !repeated.length && !observer.length && fused === null) return null;
  return section("elsewhere", "What ran",
    fused !== null ? make("p", {}, `Of the values, ${fused.toLocaleString("en")} were fused away by ONNX Runtime's optimizers; the others stand in the table as "optimized".`) : null,
    observer.length ? make("p", {}, changed.length ? `Exposing values changed ${outputs(changed)} of ${count(outputs(observer), "output")} of graphs.` : `Exposing values changed none of ${count(outputs(observer), "output")} of graphs.`) : null,
    changed.length ? table("Outputs that exposing values changed", [["", (seen) => badge(seen.ok ? "ok" : "diverges")], ["graph", (seen) => `${seen.phase} ${seen.graph}`], ["run", (seen) => seen.run ?? 1, "number"], ["output", (seen) => seen.output, "code"], ["against", (seen) => seen.execution],
      ["max apart", (seen) => gap(seen.distance), "number"], ["noise floor", (seen) => number(seen.noise_floor), "number"]], changed) : null,
    fallbacks.length ? table("Ran in eager torch, not in ONNX Runtime, and not compared", [["phase", (each) => each.phase], ["FX node", (each) => each.fx_node, "code"], ["op", (each) => each.target, "code"], ["source", (each) => each.source, "code"], ["why", (each) => each.reason]], fallbacks) : null,
    breaks.length ? make("p", {}, `What runs between graphs is eager torch, and not compared. torch.compile ended ${count(breaks.length, "graph")} before the end of the model:`) : null,
    breaks.length ? make("ul", {}, [...new Set(breaks)].map((reason) => make("li", {}, reason))) : null,
    repeated.length ? table("Graphs of which not every run was compared", [["graph", (each) => `${each.phase} ${each.graph}`], ["runs", (each) => each.ran, "number"], ["compared, from the first", (each) => each.compared, "number"]], repeated) : null);
}

function setupSection(report) {
  const graphs = report.graphs.map((each) => `${each.graph} ${each.phase}${each.compile_id ? ` (compile id ${each.compile_id})` : ""}`).join(", ");
  const pairs = (known) => Object.entries(known ?? {}).map(([name, value]) => [name.replaceAll("_", " "), value === null ? null : typeof value === "string" ? value : JSON.stringify(value)]);
  return section("setup", "Setup", make("h3", {}, "Asked for"), facts([["graphs", graphs], ...pairs(report.settings)]), make("h3", {}, "Environment"), facts(pairs(report.environment)));
}
