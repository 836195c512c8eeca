"""The command passes the conformance kit."""

from __future__ import annotations

from asyncrec.testing import CommandConformance


class TestReport(CommandConformance):
    plugin = "asyncrec_report.plugin"
    name = "report"
    arguments = ("PATH", "-o", "page.html")
