"""A report as one HTML file, which needs nothing beside it."""

from dort_compare.report.html.page import changes_page, diff_page, page

__all__ = ["changes_page", "diff_page", "page"]
