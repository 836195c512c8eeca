"""The plugin's hook, which provides the command ``asyncrec report``."""

from __future__ import annotations

from collections.abc import Iterable

from asyncrec.plugins import Command, hookimpl


@hookimpl
def asyncrec_commands() -> Iterable[Command]:
    words = "create an HTML report on a data set: features, images, classes, damage"
    return [Command("report", words, "asyncrec_report.command:command", section="Inspect")]
