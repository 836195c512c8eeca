"""`COMMANDS`: the built-in commands, with the order and descriptions of ``asyncrec --help``.

A command NAME is the function ``command`` in the module ``asyncrec.cli._NAME`` (with ``_`` for ``-``), imported when it
is called. A new command needs a module and a line here. `asyncrec.cli._installed` adds the commands of plugins.
"""

from __future__ import annotations

from asyncrec.plugins._kinds import Command

SECTIONS: dict[str, dict[str, str]] = {
    "Inspect": {
        "info": "show what a file, folder or data set holds",
        "ls": "list the data sets and files in a folder, or the shards of a data set",
        "head": "show the first records, decoded",
        "tail": "show the last records; with -f, keep showing new ones as they are committed",
        "cat": "print records: decoded, as JSON lines, hex, text or raw; by number, key or value",
        "sample": "draw random records, to show or to write as a new data set",
        "count": "count records, also by the values of a feature",
        "watch": "show how a crawl is doing: its speed, its writers, the records not yet safe",
        "schema": "show the features of the records: the stored schema, or an inferred one",
        "diff": "compare the records of two data sets",
    },
    "Check and repair": {
        "verify": "check every checksum, and find orphans",
        "repair": "write the intact records of a damaged file to a new one",
        "recover": "commit the records that a crashed writer left behind",
        "forget-source": "forget how far a source was stored, so that it begins anew",
        "index": "create indexes for random access, tfrecord or DALI",
        "uploads": "list or remove unfinished uploads",
        "doctor": "test whether a store supports what asyncrec needs",
    },
    "Create and transform": {
        "compact": "join small shards, and merge the manifest, so that it opens faster",
        "copy": "copy files and data sets between stores, verified",
        "reshard": "rewrite a data set with other shards: number, size, compression, order",
        "delete": "delete records for good, by key or condition",
        "filter": "write the records that match conditions as a new data set",
        "merge": "join several data sets into a new one",
        "dedupe": "write a new data set without duplicate records",
        "convert": "convert JSON lines, CSV, and with asyncrec-formats Parquet and WARC",
        "from-csv": "make train, eval and test data sets from a CSV file",
        "from-folder": "make train, eval and test data sets from folders of files",
    },
}

COMMANDS: dict[str, Command] = {
    name: Command(name, words, f"asyncrec.cli._{name.replace('-', '_')}:command", section)
    for section, commands in SECTIONS.items()
    for name, words in commands.items()
}
