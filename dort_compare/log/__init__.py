"""The log of a compilation: what is compiled, how long each stage takes, and the operators under their modules."""

from dort_compare.log.compilation import Compilation, Piece
from dort_compare.log.loggers import MOST_VERBOSE
from dort_compare.log.telling import compiling
from dort_compare.log.traced import tracing

__all__ = ["MOST_VERBOSE", "Compilation", "Piece", "compiling", "tracing"]
