// What the plot shows of a report: local and inherited errors, in three units.

const ERRORS = {
  units: { floors: "in noise floors (1 is where an op departs)", relative: "over the largest element", absolute: "absolute" },
  series: [
    { key: "inherited", name: "inherited", sign: "–", why: "each side on its own earlier values", of: (row, unit) => error(row, "inherited", unit) },
    { key: "local", name: "local", sign: "●", why: "ONNX on torch's operands: what this op adds", of: (row, unit) => error(row, "local", unit) },
    { key: "diverges", name: "diverges", sign: "✕", why: "beyond its noise floor", of: (row, unit) => (row.status === "diverges" ? error(row, "local", unit) ?? error(row, "inherited", unit) : null) },
    { key: "floor", name: "noise floor", sign: "┄", why: "what rounding explains", of: floor },
  ],
  lines: (row) => [make("strong", {}, row.fx_node), make("span", {}, `${row.part} · ${row.target}`),
    make("span", {}, `local ${gap(row.local)}, inherited ${gap(row.inherited)}, floor ${number(row.noise_floor)}`), badge(row.status)],
};

function error(row, which, unit) {
  if (unit === "floors") return row[`${which}Ratio`];
  const distance = row[which];
  if (!distance) return null;
  return distance.finding ? Infinity : distance[unit === "relative" ? "max_rel" : "max_abs"] ?? Infinity;
}

function floor(row, unit) {
  if (!row.inherited) return null;
  if (unit === "floors") return 1;
  const scale = (row.local ?? row.inherited).scale;
  return unit === "absolute" ? row.noise_floor : scale ? row.noise_floor / scale : null;
}
