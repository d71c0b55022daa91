// Elements, text and numbers. Whatever a report says becomes text, never markup.

/** An element; properties called on… are listeners, children are elements or text, null is left out. */
function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Control characters, surrogates and what changes the direction of writing, as escapes that can be seen. */
function printable(text) {
  return /[\p{C}\p{Zl}\p{Zp}]/u.test(text)
    ? text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`)
    : text;
}

/** Three digits; a dash where there is no number. */
function number(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  if (!Number.isFinite(value)) return "∞";
  const size = Math.abs(value);
  return size >= 1e-3 && size < 1e4 ? String(Number(value.toPrecision(3))) : value.toExponential(2);
}

/** How many of something, in words. */
function count(n, one, many = `${one}s`) {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

/** Of large numbers the first digits: 26K. */
function compact(value) {
  return value >= 1e4 && value < 1e15 ? value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 }) : number(value);
}

function shapeText(shape) {
  return shape.join("×") || "scalar";
}

const MARKS = { ok: "✓", inherits: "↳", diverges: "✕", unaligned: "?" };

/** A status as a sign and a word: never by its colour alone. */
function badge(status) {
  return make("span", { class: `badge ${status}` }, make("span", { "aria-hidden": "true" }, MARKS[status] ?? "•"), ` ${status}`);
}

const COLOURS = new Map();

/** A colour of the style sheet as the canvas takes it, light or dark as the page is. */
function colour(name) {
  if (!COLOURS.has(name)) COLOURS.set(name, resolved(name));
  return COLOURS.get(name);
}

function resolved(name) {
  const probe = document.getElementById("detail");
  probe.style.color = `var(--${name})`;
  const found = getComputedStyle(probe).color;
  probe.style.color = "";
  return found;
}

/** Says something to those who listen to the page. */
function say(text) {
  document.getElementById("spoken").textContent = text;
}

/** A table of text; a column is [heading, function of a row that gives text, an element or null, class]. */
function table(caption, columns, rows, shown = 200) {
  const body = make("tbody");
  const fill = (some) => {
    const line = (row) => make("tr", {}, columns.map(([, cell, kind]) => make("td", { class: kind }, cell(row) ?? "")));
    body.append(...some.map(line));
  };
  fill(rows.slice(0, shown));
  const head = make("thead", {}, make("tr", {}, columns.map(([name, , kind]) => make("th", { scope: "col", class: kind }, name))));
  const whole = make("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    make("table", {}, make("caption", {}, caption), head, body));
  if (rows.length <= shown) return whole;
  const rest = make("button", { type: "button", onclick: () => { fill(rows.slice(shown)); rest.remove(); } },
    `Show all ${rows.length.toLocaleString("en")}`);
  return make("div", {}, whole, rest);
}

/** Names and values, without those that have none. */
function facts(pairs) {
  const given = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return make("dl", { class: "facts" }, given.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}
