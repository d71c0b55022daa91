"""Text of strangers made fit for a line of ours."""

from __future__ import annotations


def printable(text: str) -> str:
    """``text`` in one line, control characters and the like as escapes: names may come from somebody else's file."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
