"""The hook: which schemes, and how to open one. Importing it costs nothing; fsspec comes on opening."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from asyncrec.plugins import hookimpl
from asyncrec.storage import StorageFactory

if TYPE_CHECKING:
    from asyncrec.storage import Storage

# Of fsspec's own list: those that a plugin of asyncrec answers to, or asyncrec itself, and only with "+fsspec".
_OTHERS = ("abfs", "abfss", "az", "file", "gcs", "gs", "http", "https", "local", "memory", "s3", "s3a")
_OWN = (
    "adl", "arrow_hdfs", "box", "dbfs", "dropbox", "dvc", "ftp", "gdrive", "gist", "git", "github", "hdfs", "hf",
    "jlab", "jupyter", "lakefs", "oci", "oss", "root", "sftp", "smb", "ssh", "tos", "wandb", "webdav", "webhdfs",
)  # fmt: skip


@asynccontextmanager
async def open_filesystem(url: str, **options: Any) -> AsyncIterator[Storage]:
    """Open the folder that a URL of fsspec's names; the options are those of the filesystem.

    Raises:
        ValueError: the URL is none.
        PluginError: what the filesystem needs is not installed.
        StorageError: it cannot be opened.
    """
    from asyncrec.storage import in_thread

    await in_thread(import_module, f"{__package__}.storage")
    from .storage import FsspecStorage

    yield await FsspecStorage.of(url, options)


@hookimpl
def asyncrec_storage_factories() -> Iterable[StorageFactory]:
    installed = {entry.name for entry in entry_points(group="fsspec.specs")} - {*_OTHERS, *_OWN}
    usable = sorted(name for name in installed if len(name) > 1 and name == name.lower() and name.isalnum())
    own = [name.replace("_", "-") for name in _OWN if "_" not in name] + usable
    # "file+something" is for drivers of local files, whose paths are decoded.
    named = [f"{name}+fsspec" for name in (*_OTHERS, *own) if name != "file"]
    return [StorageFactory(name="fsspec", schemes=(*own, *named), open=open_filesystem)]
