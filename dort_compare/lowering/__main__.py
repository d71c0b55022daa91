"""``python -m dort_compare.lowering [TEXT]``: how each overload whose name contains TEXT reaches ONNX."""

from __future__ import annotations

import sys

from dort_compare.lowering.table import reaches


def main() -> None:
    """Prints the table: overload, how it is reached, tested dtypes."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    lines = [("overload", "reached by", "wholly in ONNX Runtime, equal to eager in")]
    for reach in reaches():
        if wanted in reach.overload:
            dtypes = "not measured alone" if reach.dtypes is None else ", ".join(reach.dtypes) or "no dtype"
            lines.append((reach.overload, reach.how, dtypes))
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    for overload, how, dtypes in lines:
        print(f"{overload:<{widths[0]}}  {how:<{widths[1]}}  {dtypes}")


if __name__ == "__main__":
    main()
