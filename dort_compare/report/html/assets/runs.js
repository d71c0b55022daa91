// The runs: a line for each, the worst error of each, and what was asked for and where it ran.

Object.assign(MARKS, { agree: "✓", diverge: "✕" });
const VERSIONS = ["torch", "ONNX Runtime", "dort-compare"];

const WORST = {
  label: "Worst error of each run, in noise floors. Left and right move from run to run, Enter shows its column. The table holds the same.",
  height: 190,
  tick: (index) => String(index + 1),
  series: [
    { key: "now", isLine: true, of: (run) => run.worst },
    { key: "worse", of: (run) => (run.verdict === "diverge" ? run.worst : null) },
    { key: "floor", of: () => 1 },
  ],
  lines: (run) => [make("strong", {}, run.title), run.environment.date ? make("span", {}, run.environment.date) : null,
    make("span", {}, `${number(run.worst)} noise floors`), make("span", {}, `${run.departing.toLocaleString("en")} departing`), badge(run.verdict)].filter(Boolean),
};

const RUN_COLUMNS = [
  ["run", (run) => String(run.index + 1), "number"], ["", (run) => badge(run.verdict)], ["departing", (run) => run.departing.toLocaleString("en"), "number"],
  ["worst error, in floors", (run) => number(run.worst), "number"], ["date", (run) => String(run.environment.date ?? "").replace("T", " ").slice(0, 16), "date"],
  ["report", (run) => run.name, "file"], ["verdict", (run) => run.summary, "sentence"],
];

/** The versions that are not the same in all runs; the setups have all. */
function differing(runs) {
  return VERSIONS.filter((name) => new Set(runs.map((run) => run.environment[name])).size > 1).map((name) => [name, (run) => run.environment[name]]);
}

function runsSection(runs, chart) {
  return section("runs", "Runs", make("div", { class: "beside" },
    make("figure", {}, make("figcaption", {}, "Worst error of each run, in noise floors: ● the run agrees, ✕ it diverges"), chart.element), table("From the oldest to the newest", [...RUN_COLUMNS.slice(0, 5), ...differing(runs), ...RUN_COLUMNS.slice(5)], runs)));
}

/** What was asked for and where it ran, run by run, what differs first. */
function setups(runs) {
  const text = (value) => (value === undefined || value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value));
  const told = runs.map((run) => ({ ...run.settings, ...run.environment }));
  const rows = [...new Set(told.flatMap(Object.keys))].map((name) => ({ name: name.replaceAll("_", " "), values: told.map((each) => text(each[name])) }));
  const differs = ({ values }) => new Set(values).size > 1;
  rows.sort((one, other) => differs(other) - differs(one));
  return section("setup", "Setups", table("Settings and environment", [["", (row) => (differs(row) ? badge("differs") : "")], ["name", (row) => row.name],
    ...runs.map((run) => [run.title.toLowerCase(), (row) => row.values[run.index]])], rows));
}
