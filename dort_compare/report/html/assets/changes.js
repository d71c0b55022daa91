// What got better and worse between two reports.

const CHANGES = ["worse", "better", "new", "gone", "same"];
Object.assign(MARKS, { worse: "▲", better: "▼", new: "+", gone: "−", same: "=" });

function readChanges() {
  const { changes, ...rest } = JSON.parse(document.getElementById("report").textContent);
  const report = cleaned(rest);
  report.changes = rowsOf(changes, "lowered");
  report.changes.forEach((row, i) => {
    row.index = i;
    row.part = row.what === "value" ? row.where : "outputs and gradients";
    for (const side of ["old_error", "new_error"]) row[side] ??= null;
    row.growth = Math.max(row.old_error ?? 0, row.new_error ?? 0);
    row.words = [row.name, row.target, row.module, row.source, row.where, row.what].join("\n").toLowerCase();
  });
  return report;
}

const OLD_AND_NEW = {
  units: { floors: "in noise floors (1 is where an op departs)" },
  series: [
    { key: "old", name: "old", sign: "–", why: "in the old report", of: (row) => row.old_error },
    { key: "now", name: "new", sign: "●", why: "in the new report", of: (row) => row.new_error },
    { key: "worse", name: "worse", sign: "✕", why: "what got worse", of: (row) => (row.change === "worse" ? row.new_error ?? Infinity : null) },
    { key: "floor", name: "noise floor", sign: "┄", why: "what rounding explains", of: () => 1 },
  ],
  lines: (row) => [make("strong", {}, row.name), make("span", {}, `${row.part} · ${row.target || row.what}`),
    make("span", {}, `${number(row.old_error)} → ${number(row.new_error)} noise floors`), badge(row.change)],
};

const CHANGE_COLUMNS = [
  { headerName: "Change", field: "change", width: 110, cellRenderer: ({ value }) => badge(value) },
  { headerName: "What", field: "what", width: 100 },
  { headerName: "Where", field: "where", width: 120 },
  { headerName: "Name", field: "name", width: 260, cellClass: "code" },
  { headerName: "Op", field: "target", width: 210, cellClass: "code" },
  { headerName: "Old", field: "old_status", width: 112, cellRenderer: ({ value }) => (value ? badge(value) : "–") },
  { headerName: "New", field: "new_status", width: 112, cellRenderer: ({ value }) => (value ? badge(value) : "–") },
  { headerName: "Old error, in floors", field: "old_error", width: 150, ...NUMERIC },
  { headerName: "New error, in floors", field: "new_error", width: 150, ...NUMERIC },
  { headerName: "Module", field: "module", width: 190 },
  { headerName: "Source", field: "source", width: 260 },
];

const CHANGES_PAPER = [
  ["", (row) => badge(row.change)], ["where", (row) => row.where], ["name", (row) => row.name, "code"], ["op", (row) => row.target, "code"],
  ["old", (row) => `${row.old_status ?? "–"} ${number(row.old_error)}`, "number"], ["new", (row) => `${row.new_status ?? "–"} ${number(row.new_error)}`, "number"], ["source", (row) => row.source, "code"],
];

function changesVerdict(report) {
  const many = (change) => report.changes.filter((row) => row.change === change).length;
  const isGood = many("worse") === 0;
  const title = isGood ? (many("better") ? "Better" : "Nothing got worse") : many("better") ? "Better and worse" : "Worse";
  const line = (name, side) => make("p", { class: "sentence" }, make("span", { class: "soft" }, `${name}${side.environment?.date ? `, ${side.environment.date}` : ""}: `), side.summary ?? side.verdict);
  const tally = CHANGES.filter(many).map((change) => make("li", {}, make("strong", {}, many(change).toLocaleString("en")), badge(change)));
  return make("section", { id: "verdict", class: `verdict ${isGood ? "good" : "bad"}`, "aria-labelledby": "verdict-title" },
    make("p", { class: "sign", "aria-hidden": "true" }, isGood ? "✓" : "▲"),
    make("div", {}, make("h1", { id: "verdict-title" }, title), line("Old", report.old), line("New", report.new), make("ul", { class: "tally", "aria-label": "Changes" }, tally)));
}

/** What was asked for and where it ran, of both, and which of it differs. */
function setups(report) {
  const told = (side) => ({ ...side.settings, ...side.environment });
  const [old, now] = [told(report.old), told(report.new)];
  const text = (value) => (value === undefined || value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value));
  const rows = [...new Set([...Object.keys(old), ...Object.keys(now)])].map((name) => ({ name: name.replaceAll("_", " "), old: text(old[name]), now: text(now[name]) }));
  rows.sort((one, other) => (one.old === one.now) - (other.old === other.now));
  return section("setup", "Setups", table("Settings and environment", [["", (row) => (row.old === row.now ? "" : badge("differs"))], ["name", (row) => row.name], ["old", (row) => row.old], ["new", (row) => row.now]], rows));
}
