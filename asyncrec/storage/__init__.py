"""Paths to bytes: stores and how they are found.

base         what a backend implements: Storage, ByteSink, ByteSource
url          paths and keys, taken apart and put together
hookspecs    the hook by which backends come in
plugins      those that are there; foreign: simple objects that only write
registry     from a path to its backend
local        files (local_disk, local_sink, local_source, local_walk); memory: this process; prefixed: a part of any
retry        the one back-off
chunks       bytes -> chunks; resuming: reading on after a fault, and ahead
files        any bytes under a path
bridge       an asyncio-only client under trio
"""
