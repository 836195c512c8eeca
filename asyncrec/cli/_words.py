"""`in_options` says in the words of the command line what the library says in Python's.

A message of the library names parameters: ``max_shard_bytes``, ``mode='replace'``. Whoever typed a command has options,
and other remedies.
"""

from __future__ import annotations

import re
import shlex

# What the library advises, and what a command line has instead.
_REMEDIES = (
    (
        "to skip damaged records, pass on_corrupt='skip'; to write the whole ones to a new file, run `asyncrec repair`",
        "'asyncrec repair' writes the whole records to a new file",
    ),
    ("; verify=False returns it as it is", ""),
    ("; name the encoding with encoding=...", ", which a table is to be"),
    ("; mode='replace' would replace it", "; choose another name"),
    (", or begin anew with mode='replace'", ""),
    (", or register one with register_writer_factory", ""),
    (" (overwrite=True)", ""),
    (" (writer.write(..., key=))", ""),
    ("take_over=True takes the name from it", "'asyncrec recover' with --abandon takes the name from it"),
    ('expected "", "GZIP" or "ZLIB" (TensorFlow\'s 0, 2 or 1)', "expected none, gzip or zlib"),
)
# Parameters whose options have other names; those that have the same are found by what they look like.
_OPTIONS = {
    "source_format": "--from",
    "target_format": "--to",
    "storage_options": "--storage-option",
    "target_storage_options": "--target-storage-option",
    "temporary_folder": "--temporary-folder",
    "min_age": "--older-than",
}
_SAME = (
    "class_feature",
    "compression",
    "group_by",
    "jobs",
    "key_feature",
    "max_shard_bytes",
    "max_shard_records",
    "num_shards",
    "parallelism",
)
_ASSIGNED = re.compile(r"(?<![\w-])(\w{1,40})=(?=['\"\w])")
_RATIOS = re.compile(r"\bratios=(?:\[([^\]]{0,200})\]|(?=[\w.-]))")
_NAME = re.compile(r"(?<![\w-])(\w{1,40})\b=?")
_BESIDE = re.compile(r" \((\w+)\)")
_RECOVER = re.compile(
    r"\basyncrec\.recover(?:\('([^']{1,1000})'(?:, to=(?:'([^']{1,1000})'|(\.\.\.)))?"
    r"(?:, abandon=\['([^']{1,100})'\])?\)|(\(abandon=\)))?"
)
# What Python says of an option that a backend does not take.
_UNEXPECTED = re.compile(r"\b\w{1,80}\(\) got an unexpected keyword argument '(\w{1,80})'")


def in_options(message: str) -> str:
    """The message, with options where it names parameters."""
    message = _UNEXPECTED.sub(r"this storage has no option '\1'", message)
    message = _RECOVER.sub(_recover, message)
    message = _BESIDE.sub(lambda match: "" if match[1] in _OPTIONS else match[0], message)  # behind the option itself
    for said, instead in _REMEDIES:
        message = message.replace(said, instead)
    message = _RATIOS.sub(lambda match: "--ratios " + (match[1] or "").replace(" ", ""), message)
    message = _ASSIGNED.sub(lambda match: f"{_option(match[1])} " if match[1] in _SAME else match[0], message)
    return _NAME.sub(lambda match: _option(match[1]) if _is_named(match[1]) else match[0], message)


def _recover(match: re.Match[str]) -> str:
    path, to, anywhere, writer, gives_up = match.groups()
    words = ["asyncrec", "recover", *(["--abandon", writer] if writer else []), *([shlex.quote(path)] if path else [])]
    words += ["--to", shlex.quote(to) if to else anywhere] if to or anywhere else []
    command = " ".join(words)
    quote = '"' if "'" in command else "'"
    return f"{quote}{command}{quote}" + (" with --abandon" if gives_up else "")


def _is_named(word: str) -> bool:
    """Whether a word can only be a parameter's name: ``compression`` and the like are words of English, too."""
    return word in _OPTIONS or (word in _SAME and "_" in word)


def _option(parameter: str) -> str:
    return _OPTIONS.get(parameter) or "--" + parameter.replace("_", "-")
