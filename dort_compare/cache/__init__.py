"""Models of graphs that were compiled before, on disk: what a second process need not lower again."""

from dort_compare.cache.entry import Entry
from dort_compare.cache.store import Store

__all__ = ["Entry", "Store"]
