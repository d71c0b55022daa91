// What of the values is shown: words, statuses, graph, op and module.

const STATUSES = ["diverges", "inherits", "unaligned", "ok"];

/** The controls; `passes` says of a row whether it is shown, `set` changes some of them, `tell` how many are left. */
function makeFilters(report, changed) {
  const search = make("input", { type: "search", id: "search", placeholder: "Name, op, module, source …  (press /)", autocomplete: "off", spellcheck: "false" });
  const boxes = STATUSES.map((status) => kindBox(status, report.values.filter((row) => row.status === status).length));
  const part = choice("Graph", "every graph", counted(report.values.map((row) => row.part)));
  const target = choice("Op", "every op", counted(report.values.map((row) => row.target)).sort());
  const module = choice("Module", "every module", modulesOf(report));
  const left = make("output", { class: "left", "aria-live": "polite", for: "search" });
  const clear = make("button", { type: "button" }, "Clear");
  const element = make("form", { class: "filters", role: "search", "aria-label": "Filter the values" },
    make("label", { class: "search" }, make("span", {}, "Search"), search),
    make("fieldset", {}, make("legend", {}, "Status"), boxes.map((box) => box.label)),
    part.label, target.label, module.label, clear, left);

  let wanted = [];
  let statuses = new Set();
  const update = () => {
    wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    statuses = new Set(boxes.filter((box) => box.input.checked).map((box) => box.kind));
    changed();
  };
  const set = (given) => {
    search.value = given.search ?? "";
    part.select.value = given.part ?? "";
    target.select.value = given.target ?? "";
    module.select.value = given.module ?? "";
    boxes.forEach((box) => { box.input.checked = (given.statuses ?? []).includes(box.kind); });
    update();
  };
  element.addEventListener("input", update);
  element.addEventListener("submit", (event) => event.preventDefault());
  clear.addEventListener("click", () => set({}));

  const passes = (row) =>
    (!statuses.size || statuses.has(row.status))
    && (!part.select.value || row.part === part.select.value)
    && (!target.select.value || row.target === target.select.value)
    && within(row.module, module.select.value)
    && wanted.every((word) => words(row).includes(word));
  const tell = (shown) => { left.textContent = `${shown.toLocaleString("en")} of ${count(report.values.length, "value")}`; };
  return { element, passes, set, tell, focus: () => search.focus() };
}

/** Whether a module is, or lies in, another; everything lies in none. */
function within(module, outer) {
  return !outer || module === outer || module.startsWith(`${outer}.`);
}

/** A box for the rows of a kind, of which there are `many`. */
function kindBox(kind, many, isChecked = false) {
  const input = make("input", { type: "checkbox", name: kind, checked: isChecked, disabled: many === 0 });
  return { kind, input, label: make("label", { class: "status" }, input, badge(kind), make("span", { class: "many" }, many.toLocaleString("en"))) };
}

function choice(name, all, options) {
  const select = make("select", {}, make("option", { value: "" }, all), options.map((each) => make("option", { value: each }, each)));
  return { select, label: make("label", {}, make("span", {}, name), select) };
}

function counted(names) {
  return [...new Set(names)].filter(Boolean);
}

function modulesOf(report) {
  return report.by_module.map((each) => each.module).filter(Boolean);
}

/** Search and boxes for the kinds of rows above a table; `hint` says what is looked in, `off` are kinds that are not shown at first. */
function makeBoxes(rows, { title, hint, kinds, kindOf, off = [] }, changed) {
  const search = make("input", { type: "search", id: "search", placeholder: `${hint} …  (press /)`, autocomplete: "off", spellcheck: "false" });
  const boxes = kinds.map((kind) => kindBox(kind, rows.filter((row) => kindOf(row) === kind).length, !off.includes(kind)));
  const left = make("output", { class: "left", "aria-live": "polite", for: "search" });
  const element = make("form", { class: "filters", role: "search", "aria-label": "Filter the values" },
    make("label", { class: "search" }, make("span", {}, "Search"), search), make("fieldset", {}, make("legend", {}, title), boxes.map((box) => box.label)), left);
  let wanted = [], shown = new Set();
  const update = () => {
    wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    shown = new Set(boxes.filter((box) => box.input.checked).map((box) => box.kind));
    changed();
  };
  element.addEventListener("input", update);
  element.addEventListener("submit", (event) => event.preventDefault());
  update();
  return {
    element,
    passes: (row) => shown.has(kindOf(row)) && wanted.every((word) => row.words.includes(word)),
    tell: (many) => { left.textContent = `${many.toLocaleString("en")} of ${count(rows.length, "value")}`; },
    all: () => { search.value = ""; boxes.forEach((box) => { box.input.checked = true; }); update(); },
    focus: () => search.focus(),
  };
}
