// The values side by side: what torch computed, the ONNX value held against it, and how far apart they lie.

const ROW = 30, HEAD = 32, ROUND = 24;  // pixels; a table of few rows is no taller than they are, with borders and scrollbar

const NUMERIC = {
  cellClass: "number",
  valueFormatter: ({ value }) => number(value),
  comparator: (one, other) => (one ?? -1) - (other ?? -1) || 0,
  sortingOrder: ["desc", "asc", null],
};

function gridColumns(hasParts) {
  return [
    { headerName: "Verdict", children: [
      { headerName: "#", field: "index", width: 74, cellClass: "number", sort: null },
      { headerName: "Status", field: "status", width: 112, cellRenderer: ({ value }) => badge(value) },
    ] },
    { headerName: "PyTorch", children: [
      ...(hasParts ? [{ headerName: "Graph", field: "part", width: 120 }] : []),
      { headerName: "FX node", field: "fx_node", width: 190, cellClass: "code" },
      { headerName: "Op", field: "target", width: 200, cellClass: "code" },
    ] },
    { headerName: "max |torch − onnx|", children: [
      { headerName: "Inherited", ...NUMERIC, ...ofDistance("inherited") },
      { headerName: "Local", ...NUMERIC, ...ofDistance("local") },
      { headerName: "Local, in floors", colId: "floors", headerTooltip: "Local error over its noise floor: above 1 the op departs", width: 130, ...NUMERIC, valueGetter: ({ data }) => data.localRatio },
    ] },
    { headerName: "ONNX", children: [
      { headerName: "Value", field: "onnx_value", width: 150, cellClass: "code" },
      { headerName: "Nodes", colId: "nodes", width: 150, valueGetter: ({ data }) => (data.op_types ?? []).join(", ") },
    ] },
    { headerName: "Value", children: [
      { headerName: "dtype", field: "dtype", width: 90 },
      { headerName: "Shape", colId: "shape", width: 130, valueGetter: ({ data }) => shapeText(data.shape) },
    ] },
    { headerName: "max |value − float64|", children: [
      { headerName: "torch", field: "torch_vs_float64", width: 95, ...NUMERIC },
      { headerName: "ONNX", field: "onnx_vs_float64", width: 95, ...NUMERIC },
    ] },
    { headerName: "Where", children: [
      { headerName: "Module", field: "module", width: 190 },
      { headerName: "Source", field: "source", width: 260 },
    ] },
  ];
}

/** A distance in the width of a cell: of a finding what it is, and on which side. */
function brief(distance) {
  return distance?.finding ? distance.finding.split("; ").map((each) => each.split(" where ")[0]).join("; ") : gap(distance);
}

/** Sorts by the largest deviation, and shows the finding where that says more. */
function ofDistance(name) {
  return {
    colId: name,
    width: 145,
    valueGetter: ({ data }) => (data[name]?.finding ? Infinity : data[name]?.max_abs),
    valueFormatter: ({ data }) => brief(data[name]),
    tooltipValueGetter: ({ data }) => data[name]?.finding,
  };
}

/** The table; `refresh` after the filters changed, `reveal` to go to a row, `focus` to go back to it. */
function makeGrid(report, filters, open, show) {
  const element = make("div", { class: "grid", role: "region", "aria-label": "Values side by side" });
  const api = agGrid.createGrid(element, {
    ...gridOptions(report.values, filters, element),
    columnDefs: gridColumns(new Set(report.values.map((row) => row.part)).size > 1),
    localeText: { noRowsToShow: report.values.length ? "No value passes the filters" : "No value was compared" },
    onRowClicked: ({ data }) => open(data, false),
    onCellKeyDown: ({ data, event }) => { if (event.key === "Enter") open(data, true); },
    onCellFocused: ({ rowIndex, api: grid }) => {
      const node = rowIndex === null ? null : grid.getDisplayedRowAtIndex(rowIndex);
      if (node) show(node.data);
    },
  });
  const focus = (row) => api.setFocusedCell(api.getRowNode(String(row.index)).rowIndex, "fx_node");
  return { element, refresh: () => api.onFilterChanged(), reveal: (row) => reveal(api, row, () => filters.set({})), focus, shown: () => shownIn(api) };
}

/** What the tables have in common: rows that pass the filters, in sight alone. */
function gridOptions(rows, filters, element) {
  return {
    theme: gridTheme(),
    rowData: rows,
    defaultColDef: { resizable: true, suppressMovable: true, suppressHeaderMenuButton: true },
    rowSelection: { mode: "singleRow", checkboxes: false, enableClickSelection: true },
    rowHeight: ROW,
    headerHeight: HEAD,
    ensureDomOrder: true,
    enableCellTextSelection: true,
    animateRows: false,
    tooltipShowDelay: 400,
    isExternalFilterPresent: () => true,
    doesExternalFilterPass: ({ data }) => filters.passes(data),
    onModelUpdated: ({ api }) => {
      const shown = api.getDisplayedRowCount();
      element.style.maxHeight = `${2 * HEAD + Math.max(shown, 4) * ROW + ROUND}px`;
      filters.tell(shown);
    },
  };
}

/** Goes to a row; `all` takes the filters off where they hide it. */
function reveal(api, row, all) {
  const node = api.getRowNode(String(row.index));
  if (node.rowIndex === null) all();
  node.setSelected(true, true);
  api.ensureIndexVisible(node.rowIndex, "middle");
}

/** The rows that the filters let through, as they are sorted. */
function shownIn(api) {
  const rows = [];
  api.forEachNodeAfterFilterAndSort(({ data }) => rows.push(data));
  return rows;
}

/** AG Grid's theme in the colours of the page, which follow light and dark. */
function gridTheme() {
  return agGrid.themeQuartz.withParams({
    fontFamily: "inherit",
    fontSize: 13,
    spacing: 6,
    backgroundColor: "var(--surface)",
    foregroundColor: "var(--ink)",
    headerBackgroundColor: "var(--sunk)",
    headerTextColor: "var(--ink)",
    borderColor: "var(--line)",
    accentColor: "var(--accent)",
    selectedRowBackgroundColor: "var(--chosen)",
    rowHoverColor: "var(--sunk)",
    oddRowBackgroundColor: "var(--surface)",
    headerFontWeight: 600,
    wrapperBorderRadius: 8,
    browserColorScheme: "inherit",
  });
}
