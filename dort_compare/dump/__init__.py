"""The folder in which graphs, models, inputs and values of a run are kept. Nothing in it is a pickle."""

from dort_compare.dump.reader import graphs_in
from dort_compare.dump.staging import staged
from dort_compare.dump.writer import DumpWriter

__all__ = ["DumpWriter", "graphs_in", "staged"]
