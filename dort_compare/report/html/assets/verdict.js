// The verdict and its causes.

function verdictSection(report) {
  const isGood = report.verdict === "agree";
  const many = (status) => report.values.filter((row) => row.status === status).length;
  const tally = STATUSES.filter(many).map((status) => make("li", {}, make("strong", {}, many(status).toLocaleString("en")), badge(status)));
  return make("section", { id: "verdict", class: `verdict ${isGood ? "good" : "bad"}`, "aria-labelledby": "verdict-title" },
    make("p", { class: "sign", "aria-hidden": "true" }, isGood ? "✓" : "✕"),
    make("div", {}, make("h1", { id: "verdict-title" }, isGood ? "Agree" : "Diverge"),
      make("p", { class: "sentence" }, sentence(report)), make("ul", { class: "tally", "aria-label": "Values by status" }, tally)));
}

function sentence(report) {
  const text = report.summary ?? report.first_divergence?.reason ?? "";
  return text.replace(/^(agree|diverge)( \(and \d+ more\))?: /, "");
}

function ends(nodes) {
  const names = nodes.split(" ");
  return names.length <= 6 ? nodes : [...names.slice(0, 3), "...", ...names.slice(-3)].join(" ");
}

function causesSection(report, open) {
  if (!report.causes.length) return null;
  const shown = report.causes.slice(0, 20), left = report.causes.length - shown.length;
  const title = report.causes.length === 1 ? "The cause" : `The ${report.causes.length} causes`;
  return make("section", { id: "causes", "aria-labelledby": "causes-title" }, make("h2", { id: "causes-title" }, title),
    make("div", { class: "causes" }, shown.map((cause) => causeCard(report, cause, open))),
    left ? make("p", {}, `and ${left.toLocaleString("en")} more, which the table lists as ✕ diverges`) : null);
}

const ENLARGES = "is what the tables say of it: on torch's own operands the op is right. It is the cause all the same, for it makes a departure of what is noise in the values that it reads; those, and not its kernel, are what to look at.";

function causeCard(report, cause, open) {
  const row = rowOfCause(report, cause);
  const isFurther = (side) => cause.further_from_float64 === side && !hidesElements(cause);
  const float64 = (side, value) => [`${side} from float64${hidesElements(cause) ? ", finite elements" : ""}`, value === null ? null : number(value) + (isFurther(side) ? ", further" : "")];
  return make("article", { class: "cause" },
    make("header", {}, make("h3", { class: "code" }, ends(cause.fx_node) || "the model"), make("span", { class: "code soft" }, cause.target),
      row ? make("button", { type: "button", onclick: () => open(row, true) }, "Open") : null),
    make("p", {}, cause.reason),
    row?.status === "inherits" ? make("p", { class: "soft" }, badge("inherits"), " " + ENLARGES) : null,
    facts([
      ["Phase", cause.phase], ["Module", cause.module || null], ["Source", cause.source ? make("span", { class: "code" }, cause.source) : null],
      ["ONNX nodes", cause.onnx_nodes.length ? make("span", { class: "code" }, cause.onnx_nodes.join(", ")) : null],
      ["Local error", cause.local ? gap(cause.local) : null], ["Inherited error", cause.inherited ? gap(cause.inherited) : null],
      ["Noise floor", cause.noise_floor === null ? null : number(cause.noise_floor)],
      float64("torch", cause.torch_vs_float64), float64("ONNX", cause.onnx_vs_float64),
    ]),
    cause.reaches ? make("p", {}, make("span", { class: "soft" }, "Reaches "), reachText(cause.reaches)) : null,
    row?.code ? make("pre", {}, row.code) : null);
}

function reachText({ values, outputs, gradients }) {
  const named = (names, one) => (names.length ? `${count(names.length, one)} (${names.slice(0, 4).join(", ")}${names.length > 4 ? ", …" : ""})` : `no ${one}`);
  return `${count(Math.max(values - 1, 0), "later value")}, ${named(outputs, "output")}, ${named(gradients, "gradient")}`;
}
