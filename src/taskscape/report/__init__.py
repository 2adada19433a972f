"""The results of a study as one self-contained HTML page."""

from taskscape.report.page import render_report, write_report

__all__ = ["render_report", "write_report"]
