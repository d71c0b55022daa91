// What every page does: its contents on top, the search at a key, light colours on paper.

/** Links to the sections, in the head of the page. */
function contents(page) {
  const titles = [...page.querySelectorAll("section[id] > h2")].map((heading) => make("a", { href: `#${heading.parentElement.id}` }, heading.textContent));
  document.getElementById("sections").append(make("a", { href: "#verdict" }, "Verdict"), ...titles);
}

function onSlash(act) {
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.closest("input, select, textarea")) return;
    event.preventDefault();
    act();
  });
}

const PAPER = [
  ["", (row) => badge(row.status)], ["graph", (row) => row.part], ["FX node", (row) => row.fx_node, "code"], ["op", (row) => row.target, "code"], ["ONNX value", (row) => row.onnx_value, "code"],
  ["inherited", (row) => gap(row.inherited), "number"], ["local", (row) => gap(row.local), "number"], ["floor", (row) => number(row.noise_floor), "number"], ["source", (row) => row.source, "code"],
];

/** On paper the light colours, and a plain table of the first 200 rows in the place of the one that scrolls. */
function printed(values, columns, shown, redraw) {
  const limit = 200;
  let paper = null;
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add("printing");
    redraw();
    const rows = shown();
    const caption = `${count(rows.length, "value")}${rows.length > limit ? `, the first ${limit}` : ""}`;
    paper = make("div", { class: "paper" }, table(caption, columns, rows.slice(0, limit), limit));
    values.append(paper);
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("printing");
    paper?.remove();
    redraw();
  });
}
