"""Shows a verdict; computes nothing."""

from dort_compare.report.report import Report

__all__ = ["Report"]
