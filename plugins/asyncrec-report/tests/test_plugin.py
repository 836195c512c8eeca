"""The command passes the kit."""

from __future__ import annotations

from asyncrec.testing import CommandConformance


class TestReport(CommandConformance):
    plugin = "asyncrec_report.plugin"
    name = "report"
    arguments = ("PATH", "-o", "page.html")
