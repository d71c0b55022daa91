// What is drawn into the plot: a mark of its own shape for each series, and where one graph ends and the next begins.

const SHAPES = {
  inherited: dash,
  old: dash,
  local: dot,
  now: dot,
  diverges: cross,
  worse: cross,
};

function dash(ctx, x, y, pixel) {
  ctx.fillRect(x - 3 * pixel, y - pixel, 6 * pixel, 2 * pixel);
}

function dot(ctx, x, y, pixel) {
  ctx.beginPath();
  ctx.arc(x, y, 2.5 * pixel, 0, 2 * Math.PI);
  ctx.fill();
}

function cross(ctx, x, y, pixel) {
  const size = 5 * pixel;
  ctx.beginPath();
  ctx.moveTo(x - size, y - size);
  ctx.lineTo(x + size, y + size);
  ctx.moveTo(x - size, y + size);
  ctx.lineTo(x + size, y - size);
  ctx.stroke();
}

/** The marks of a series, each of its own shape; where many would cover one another, one of them. */
function drawMarks(chart, which, key) {
  const draw = SHAPES[key];
  if (!draw) return;
  const { ctx, bbox, scales } = chart, pixel = devicePixelRatio, drawn = new Set();
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left - 5 * pixel, bbox.top, bbox.width + 10 * pixel, bbox.height);
  ctx.clip();
  ctx.fillStyle = ctx.strokeStyle = colour(key);
  ctx.lineWidth = 2.5 * pixel;
  const last = Math.min(chart.data[0].length - 1, Math.ceil(scales.x.max));
  for (let i = Math.max(0, Math.floor(scales.x.min)); i <= last; i++) {
    const value = chart.data[which][i];
    if (value === null) continue;
    const x = Math.round(chart.valToPos(i, "x", true)), y = Math.round(chart.valToPos(value, "y", true));
    if (drawn.has(x * 65536 + y)) continue;
    drawn.add(x * 65536 + y);
    draw(ctx, x, y, pixel);
  }
  ctx.restore();
}

/** Where one graph ends and the next begins, with their names. */
function drawParts(chart, rows) {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.fillStyle = colour("soft");
  ctx.strokeStyle = colour("soft");
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  for (const { name, first, last } of partsOf(rows)) {
    const left = Math.max(bbox.left, chart.valToPos(first - 0.5, "x", true));
    const right = Math.min(bbox.left + bbox.width, chart.valToPos(last + 0.5, "x", true));
    if (right <= left) continue;
    if (first > 0 && left > bbox.left) ctx.fillRect(left, bbox.top, devicePixelRatio, bbox.height);
    if (ctx.measureText(name).width < right - left - 12) ctx.fillText(name, left + 6 * devicePixelRatio, bbox.top - 5 * devicePixelRatio);
  }
  ctx.restore();
}

/** The stretches of rows that belong to one graph. */
function partsOf(rows) {
  const parts = [];
  rows.forEach(({ part }, i) => {
    if (parts.at(-1)?.name === part) parts.at(-1).last = i;
    else parts.push({ name: part, first: i, last: i });
  });
  return parts;
}
