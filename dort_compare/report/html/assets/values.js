// The report as it stands in the page: rows again of columns, names that can be shown, and errors in noise floors.

const NUMBERS = /(^|\.)(max_abs|mean_abs|scale|max_rel|cosine|noise_floor|worst|head_room|largest|\w+_vs_float64)$|^errors\.\d+$/;

/** Names made printable, and the string "inf" a number where a number stands. */
function cleaned(value, key = "") {
  if (typeof value === "string") return value === "inf" && NUMBERS.test(key) ? Infinity : printable(value);
  if (Array.isArray(value)) return value.map((each) => cleaned(each, key));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [printable(name), cleaned(each, name)]));
}

/**
 * An array of rows from `columns`, each of which reads its values there when it is asked for them: 20,000 objects with
 * values of their own would take longer to make than all else on the page. What stood under "local.max_abs" is
 * `row.local.max_abs` again, and `row.local` null where nothing did.
 */
function rowsOf({ count: many, columns }, model) {
  const readers = new Map([["model", () => model], ["inherited", () => null], ["local", () => null]]), inside = new Map();
  for (const [path, column] of Object.entries(columns)) {
    const [outer, inner] = path.split("."), read = readerOf(column, path);
    if (inner === undefined) readers.set(outer, read);
    else inside.set(outer, [...(inside.get(outer) ?? []), [inner, read]]);
  }
  for (const [name, each] of inside) {
    const Part = viewOf(each);
    readers.set(name, (at) => (each.some(([, read]) => read(at) !== null) ? new Part(at) : null));
  }
  const Row = viewOf(readers);
  return Array.from({ length: many }, (_, at) => new Row(at));
}

function readerOf(column, path) {
  if (Array.isArray(column)) {
    const values = cleaned(column, path);
    return (at) => values[at];
  }
  const values = cleaned(column.of, path);
  return (at) => values[column.at[at]];
}

/** A class of objects that read each property, by its name, at their place; what is set stays with the object. */
function viewOf(readers) {
  function View(at) { this.at = at; }
  for (const [name, read] of readers) {
    Object.defineProperty(View.prototype, name, {
      get() { return read(this.at); },
      set(value) { Object.defineProperty(this, name, { value, writable: true }); },
    });
  }
  return View;
}

/** An error in units of its noise floor; infinite where numbers do not say how far it is. */
function inFloors(distance, floor) {
  if (!distance) return null;
  if (distance.finding || distance.max_abs === null || distance.max_abs === undefined) return Infinity;
  if (distance.max_abs === 0) return 0;
  return floor ? distance.max_abs / floor : Infinity;
}

function read() {
  const { rows, optimized, ...rest } = JSON.parse(document.getElementById("report").textContent);
  const report = cleaned(rest);
  report.values = [...rowsOf(rows, "lowered"), ...(optimized ? rowsOf(optimized.rows, "optimized") : [])];
  report.fused_away = optimized?.fused_away ?? null;
  report.values.forEach((row, i) => {
    row.index = i;
    row.words = null;
    row.part = `${row.model === "optimized" ? "optimized " : ""}${row.phase} ${row.graph}`;
    row.localRatio = inFloors(row.local, row.noise_floor);
    row.inheritedRatio = inFloors(row.inherited, row.noise_floor);
    row.worstRatio = row.localRatio ?? row.inheritedRatio;
  });
  return report;
}

/** What the search looks in; made when it is first asked for. */
function words(row) {
  return row.words ??= [row.fx_node, row.target, row.onnx_value, row.module, row.source, row.reason, row.dtype, row.part,
    ...(row.onnx_nodes ?? []), ...(row.op_types ?? []), ...(row.fused ?? [])].join("\n").toLowerCase();
}

/** How far apart the sides are, in a few signs: a number, or the finding that takes its place. */
function gap(distance) {
  if (!distance) return "–";
  return distance.finding ?? number(distance.max_abs);
}

/** The row that a cause was read off; undefined for what departs outside of the graphs. */
function rowOfCause(report, cause) {
  const fits = report.values.filter((row) => row.phase === cause.phase && (row.call ?? row.fx_node) === cause.fx_node);
  return fits.find((row) => row.status === "diverges") ?? fits[0];
}
