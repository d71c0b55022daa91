"""A report as one HTML file, which needs nothing beside it."""

from dort_compare.report.html.page import page

__all__ = ["page"]
