"""What a dump alone tells, without the code of the model that it was made of."""

from dort_compare.offline.bisect import bisected
from dort_compare.offline.check import check
from dort_compare.offline.repro import repro

__all__ = ["bisected", "check", "repro"]
