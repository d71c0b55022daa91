"""``python -m dort_compare.lowering [TEXT]``: how each overload whose name contains TEXT reaches ONNX."""

from __future__ import annotations

import sys

from dort_compare.lowering.table import routes


def main() -> None:
    """Prints the table: overload, how it is reached, tested dtypes."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    lines = [("overload", "reached by", "wholly in ONNX Runtime, equal to eager in")]
    for route in routes():
        if wanted in route.overload:
            dtypes = "not measured alone" if route.dtypes is None else ", ".join(route.dtypes) or "no dtype"
            lines.append((route.overload, route.how, dtypes))
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    for overload, how, dtypes in lines:
        print(f"{overload:<{widths[0]}}  {how:<{widths[1]}}  {dtypes}")


if __name__ == "__main__":
    main()
