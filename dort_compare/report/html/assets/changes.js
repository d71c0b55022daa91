// What got better and worse from run to run.

const CHANGES = ["worse", "better", "new", "gone", "same", "ok"];
Object.assign(MARKS, { worse: "▲", better: "▼", new: "+", gone: "−", same: "=" });

function readChanges() {
  const { changes, ...rest } = JSON.parse(document.getElementById("report").textContent);
  const report = cleaned(rest);
  report.runs.forEach((run, i) => Object.assign(run, { index: i, title: `Run ${i + 1}`, part: "" }));
  report.changes = rowsOf(changes, "lowered");
  report.changes.forEach((row, i) => {
    row.index = i;
    row.part = row.what === "value" ? row.where : "outputs and gradients";
    row.kind = kindOf(row, row.latest);
    row.words = [row.name, row.target, row.module, row.source, row.where, row.what].join("\n").toLowerCase();
  });
  return report;
}

/** A change, or, of a value that was never anything else, ok. */
function kindOf(row, change) {
  return change === "same" && row.is_quiet ? "ok" : change;
}

function errorIn(row, run) {
  return row.errors?.[run.index] ?? null;
}

function oldAndNew(runs) {
  const [old, now] = runs.slice(-2), error = (run) => (row) => errorIn(row, run);
  return {
    units: { floors: "in noise floors (1 is where an op departs)" },
    series: [
      { key: "old", name: old.title.toLowerCase(), sign: "–", why: `in ${old.name}`, of: error(old) },
      { key: "now", name: now.title.toLowerCase(), sign: "●", why: `in ${now.name}`, of: error(now) },
      { key: "worse", name: "worse", sign: "✕", why: "what got worse", of: (row) => (row.latest === "worse" ? error(now)(row) ?? Infinity : null) },
      { key: "floor", name: "noise floor", sign: "┄", why: "what rounding explains", of: () => 1 },
    ],
    lines: (row) => [make("strong", {}, row.name), make("span", {}, `${row.part} · ${row.target || row.what}`),
      make("span", {}, `${number(error(old)(row))} → ${number(error(now)(row))} noise floors`), badge(row.kind)],
  };
}

function changeColumns(runs) {
  const last = runs.length, [one, other] = [last - 1, 1].map((first) => `From run ${first} to run ${last}`);
  const states = runs.map((run) => ({ headerName: run.title, headerTooltip: [run.name, run.environment.date].filter(Boolean).join(", "), colId: `run${run.index}`, width: 160, ...NUMERIC,
    valueGetter: ({ data }) => errorIn(data, run), cellRenderer: ({ data }) => stateOf(data, run) }));
  return [
    { headerName: "What changed", children: [
      { headerName: "Change", headerTooltip: one, field: "kind", width: 110, cellRenderer: ({ value }) => badge(value) },
      { headerName: "Overall", headerTooltip: other, field: "overall", width: 110, hide: last === 2, cellRenderer: ({ value }) => badge(value) },
      { headerName: "Since run", headerTooltip: "Since which run it is as it is now", width: 95, cellClass: "number", colId: "since", valueGetter: ({ data }) => data.since + 1 },
    ] },
    { headerName: "Value", children: [
      { headerName: "Name", field: "name", width: 220, cellClass: "code" },
      { headerName: "Op", field: "target", width: 210, cellClass: "code" },
      { headerName: "What", field: "what", width: 100 },
      { headerName: "Where", field: "where", width: 120 },
    ] },
    { headerName: "Status, and error in noise floors", children: states },
    { headerName: "Where in the model", children: [
      { headerName: "Module", field: "module", width: 190 },
      { headerName: "Source", field: "source", width: 260 },
    ] },
  ];
}

/** What a value was in a run; a dash where the run does not have it. */
function stateOf(row, run) {
  const status = row.statuses[run.index], error = errorIn(row, run);
  return !status ? "–" : make("span", {}, badge(status), error === null ? null : ` ${number(error)}`);
}

function changesPaper(runs) {
  return [["", (row) => badge(row.kind)], ["where", (row) => row.where], ["name", (row) => row.name, "code"], ["op", (row) => row.target, "code"],
    ...runs.map((run) => [run.title.toLowerCase(), (row) => stateOf(row, run), "number"]), ["source", (row) => row.source, "code"]];
}

/** The newest run against the one before it, and, where that is another, against the first. */
function changesVerdict({ runs, changes }) {
  const many = (change) => changes.filter((row) => row.latest === change).length;
  const isGood = many("worse") === 0;
  const title = isGood ? (many("better") ? "Better" : "Nothing got worse") : many("better") ? "Better and worse" : "Worse";
  const line = (run) => make("p", { class: "sentence" }, make("span", { class: "soft" }, `${[run.title, run.environment.date].filter(Boolean).join(", ")}: `), run.summary);
  const kindsFrom = (first, change) => changes.filter((row) => row.statuses[first] || row.statuses[runs.length - 1]).map((row) => kindOf(row, row[change]));
  const tally = (first, kinds) => make("ul", { class: "tally", "aria-label": `Changes since run ${first}` }, runs.length > 2 ? make("li", { class: "soft" }, `since run ${first}`) : null,
    CHANGES.map((kind) => [kind, kinds.filter((each) => each === kind).length]).filter(([, n]) => n).map(([kind, n]) => make("li", {}, make("strong", {}, n.toLocaleString("en")), badge(kind))));
  return make("section", { id: "verdict", class: `verdict ${isGood ? "good" : "bad"}`, "aria-labelledby": "verdict-title" },
    make("p", { class: "sign", "aria-hidden": "true" }, isGood ? "✓" : "▲"),
    make("div", {}, make("h1", { id: "verdict-title" }, title), runs.slice(-2).map(line), tally(runs.length - 1, kindsFrom(runs.length - 2, "latest")),
      runs.length > 2 ? tally(1, kindsFrom(0, "overall")) : null));
}
