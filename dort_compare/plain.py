"""Text of strangers made fit for a line of ours."""

from __future__ import annotations

from dort_compare.errors import shortened


def readable(text: str) -> str:
    """``text`` for a line that somebody reads: printable, and no name in it longer than a few lines."""
    return shortened(printable(text))


def printable(text: str) -> str:
    """``text`` in one line, control characters and the like as escapes: names may come from somebody else's file."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
