"""The plugin's hook, which provides the command ``asyncrec report``."""

from __future__ import annotations

from collections.abc import Iterable

from asyncrec.plugins import Command, hookimpl


@hookimpl
def asyncrec_commands() -> Iterable[Command]:
    words = "make an HTML page about a data set: features, images, classes, sizes, damage"
    return [Command("report", words, "asyncrec_report.command:command", section="Inspect")]
