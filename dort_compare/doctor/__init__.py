"""What works on this machine, and the command that mends what does not."""

from dort_compare.doctor.finding import Finding
from dort_compare.doctor.order import findings

__all__ = ["Finding", "findings"]
