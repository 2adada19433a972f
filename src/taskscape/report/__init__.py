"""The results of a study as one self-contained HTML page."""

from taskscape.report.page import REPORT, render_report, write_report

__all__ = ["REPORT", "render_report", "write_report"]
