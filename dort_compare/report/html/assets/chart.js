// A mark for every row along a logarithmic axis, by mouse and by keyboard.

const HEIGHT = 320;

/** By series, a number for each row; zero and what is no number stand a decade below and above all others. */
function plotData(rows, series, unit) {
  const raw = series.map(({ of }) => rows.map((row) => of(row, unit)));
  let low = Infinity, high = 0;
  for (const column of raw) {
    for (const value of column) {
      if (value > 0 && value < low) low = value;
      if (value > high && value < Infinity) high = value;
    }
  }
  if (low > high) [low, high] = [1e-3, 1e3];
  const bottom = Math.floor(Math.log10(low)) - 1, top = Math.ceil(Math.log10(high)) + 1;
  const placed = (value) => (typeof value !== "number" ? null : value === 0 ? 10 ** bottom : value < Infinity ? value : 10 ** top);
  return { columns: raw.map((column) => column.map(placed)), bottom, top };
}

/**
 * The chart; `mark` shows which row is open, `change` the unit, `show` or hides a series.
 *
 * A series has a key (its shape and colour), and `of`, which gives its number of a row in a unit; its marks are joined
 * where `isLine` says so. `lines` gives what is shown of a row that is pointed at, `tick` what stands below it.
 */
function makeChart(rows, { series, units = { floors: "" }, lines, label, height = HEIGHT, tick = null }, open) {
  const area = make("div", { class: "plot", tabindex: "0", role: "application", "aria-label": label, style: `min-height: ${height + 10}px` });
  const tip = make("div", { class: "tip", hidden: true }), here = make("div", { class: "here", hidden: true });
  let data = plotData(rows, series, Object.keys(units)[0]), at = null, chosen = null, isSized = false;
  const columns = () => [rows.map((_, i) => i), ...data.columns];
  const marked = [...series.keys()].filter((which) => SHAPES[series[which].key]);

  let chart = null;
  chart = new uPlot({
    width: 600, height,
    legend: { show: false },
    padding: [20, 16, 0, 0],
    cursor: { points: { show: false }, drag: { x: true, y: false }, y: false },
    scales: {
      x: { time: false, range: (_, low, high) => [low === null ? 0 : low, high === null ? 1 : high === low ? low + 1 : high] },
      y: { distr: 3, range: () => [10 ** (data.bottom - 0.3), 10 ** (data.top + 0.3)] },
    },
    axes: [
      { stroke: () => colour("soft"), grid: { show: false }, ticks: { stroke: () => colour("line") }, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000],
        ...(tick ? { values: (_, splits) => splits.map(tick) } : {}) },
      { stroke: () => colour("soft"), grid: { stroke: () => colour("line"), width: 1 }, ticks: { show: false }, size: 62,
        splits: () => decades(data), filter: (_, splits) => splits, values: (_, splits) => splits.map((value) => decadeText(value, data)) },
    ],
    series: [{}, ...series.map(({ key, isLine }) => ({
      points: { show: false },
      ...(key === "floor" ? { stroke: () => colour("soft"), width: 1, dash: [4, 4] } : isLine ? { stroke: () => colour(key), width: 1.5 } : { paths: () => null }),
    }))],
    hooks: { drawSeries: [(u, which) => which && drawMarks(u, which, series[which - 1].key)], draw: [(u) => drawParts(u, rows), () => place()] },
  }, columns().map(() => []), area);
  chart.over.append(here, tip);

  /** The line through the value that is pointed at, or else open. */
  function place() {
    if (!chart) return;
    const index = at ?? chosen, x = index === null ? -1 : chart.valToPos(index, "x");
    here.hidden = x < 0 || x > chart.over.clientWidth;
    here.style.left = `${x}px`;
  }
  const point = (index, isSpoken = false) => {
    at = index;
    tip.hidden = index === null;
    if (index !== null) {
      tip.replaceChildren(...lines(rows[index]));
      const x = chart.valToPos(index, "x");
      const hasRoom = x + 12 + tip.offsetWidth <= chart.over.clientWidth;
      tip.style.left = `${hasRoom ? x + 12 : Math.max(0, x - 12 - tip.offsetWidth)}px`;
      if (isSpoken) say([...tip.children].map((each) => each.textContent).join(", "));
    }
    place();
  };
  const zoom = (low, high) => {
    const span = Math.max(high - low, 4), start = Math.max(0, Math.min(low, rows.length - 1 - span));
    chart.setScale("x", { min: start, max: Math.min(rows.length - 1, start + span) });
  };
  const scaled = (factor) => {
    const { min, max } = chart.scales.x, middle = at ?? (min + max) / 2;
    zoom(Math.round(middle - (middle - min) * factor), Math.round(middle + (max - middle) * factor));
  };
  const whole = () => zoom(0, rows.length - 1);

  let pressed = null;
  chart.over.addEventListener("mousedown", (event) => { pressed = event.clientX; });
  chart.over.addEventListener("mousemove", (event) => point(nearest(chart, data, marked, event)));
  chart.over.addEventListener("mouseleave", () => point(null));
  chart.over.addEventListener("click", (event) => {
    const index = nearest(chart, data, marked, event);
    if (index !== null && Math.abs(event.clientX - pressed) < 4) open(rows[index]);
  });
  area.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[event.key];
    const act = { Enter: () => (at ?? chosen) !== null && open(rows[at ?? chosen], true), "+": () => scaled(0.5), "-": () => scaled(2), 0: whole }[event.key];
    if (step) point(Math.max(0, Math.min(rows.length - 1, (at ?? chosen ?? -step) + step)), true);
    else if (act) act();
    else return;
    event.preventDefault();
  });
  new ResizeObserver(() => {
    chart.setSize({ width: area.clientWidth, height });
    if (!isSized) chart.setData(columns()); // not before, or every mark would be drawn twice
    isSized = true;
  }).observe(area);
  const redraw = () => { COLOURS.clear(); chart.redraw(false); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  const change = (name) => {
    data = plotData(rows, series, name);
    chart.setData(columns(), false);
    chart.redraw(true, true);
  };
  const mark = (row) => { chosen = row?.index ?? null; place(); };
  const show = (which, isShown) => chart.setSeries(which + 1, { show: isShown });
  return { element: area, mark, change, show, redraw, zoom, scaled, whole };
}

/** The row whose mark is closest to the mouse, within some pixels; thousands may share one. */
function nearest(chart, { columns }, marked, { offsetX, offsetY }) {
  const first = Math.floor(chart.posToVal(offsetX - 8, "x")), last = Math.ceil(chart.posToVal(offsetX + 8, "x"));
  let found = null, closest = 40 ** 2;
  for (let i = Math.max(0, first); i <= Math.min(last, columns[0].length - 1); i++) {
    const x = chart.valToPos(i, "x") - offsetX;
    for (const which of marked) {
      if (columns[which][i] === null || !chart.series[which + 1].show) continue;
      const apart = x ** 2 + (chart.valToPos(columns[which][i], "y") - offsetY) ** 2;
      if (apart < closest) [found, closest] = [i, apart];
    }
  }
  return found;
}

function decades({ bottom, top }) {
  const step = Math.ceil((top - bottom) / 9);
  const found = [];
  for (let power = bottom; power < top; power += step) found.push(10 ** power);
  return [...found, 10 ** top];
}

function decadeText(value, { bottom, top }) {
  const power = Math.round(Math.log10(value));
  if (power === bottom) return "exact 0";
  if (power === top) return "∞ NaN";
  return power === 0 ? "1" : `10${[...String(power)].map((sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]).join("")}`;
}
