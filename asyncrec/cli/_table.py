"""`COMMANDS` are the commands that are built in, in the order and with the words of ``asyncrec --help``.

A command NAME is the function ``command`` in the module ``asyncrec.cli._NAME`` (``-`` is ``_`` there), imported when
it is called. Adding one is a module and a line here. `asyncrec.cli._installed` adds those of plugins.
"""

from __future__ import annotations

from asyncrec.plugins._kinds import Command

SECTIONS: dict[str, dict[str, str]] = {
    "Look": {
        "info": "what a file, a folder or a data set holds",
        "ls": "the data sets and files of a folder, or the shards of a data set",
        "head": "the first records, decoded",
        "tail": "the last records; with -f also those that are committed from now on",
        "cat": "records: decoded, JSON lines, hex, text or raw; by number, key or value",
        "sample": "some records drawn by a seed, to look at or as a new data set",
        "count": "how many records",
        "watch": "a crawl under way: how fast, who is at work, what is not safe yet",
        "schema": "the features of the records: as stored, or inferred",
        "diff": "which records two data sets do not share",
    },
    "Check and mend": {
        "verify": "every checksum of every shard, indexes and orphans",
        "repair": "save what is whole of damaged files",
        "recover": "publish what a crashed writer left in its spool",
        "index": "make the indexes that random access, DALI and tfrecord read",
        "uploads": "unfinished uploads, and their removal",
        "doctor": "whether a store does what asyncrec needs of it",
    },
    "Make and move": {
        "compact": "merge a data set's manifest into a checkpoint",
        "copy": "copy files and data sets between stores, verified",
        "reshard": "other shards: number, size, compression, order, groups",
        "filter": "the records that meet conditions, as a new data set",
        "merge": "several data sets as a new one",
        "dedupe": "a new data set with one of each group of equal records",
        "convert": "other formats to records, and back: JSON lines; to CSV; Parquet and WARC by asyncrec-formats",
        "from-csv": "rows of a CSV file become train, eval and test",
        "from-folder": "files in folders named by label become train, eval and test",
    },
}

COMMANDS: dict[str, Command] = {
    name: Command(name, words, f"asyncrec.cli._{name.replace('-', '_')}:command", section)
    for section, commands in SECTIONS.items()
    for name, words in commands.items()
}
