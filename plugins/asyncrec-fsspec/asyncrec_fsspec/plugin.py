"""The plugin's hook, which returns its storage factory. fsspec is imported when a storage is opened."""

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

# fsspec's filesystems that asyncrec or another plugin serves. This plugin serves them only with "+fsspec".
_OTHERS = ("abfs", "abfss", "az", "file", "gcs", "gs", "http", "https", "local", "memory", "s3", "s3a")
_OWN = (
    "adl", "arrow_hdfs", "box", "dbfs", "dropbox", "dvc", "ftp", "gdrive", "gist", "git", "github", "hdfs", "hf",
    "jlab", "jupyter", "lakefs", "oci", "oss", "root", "sftp", "smb", "ssh", "tos", "wandb", "webdav", "webhdfs",
)  # fmt: skip


@asynccontextmanager
async def open_filesystem(url: str, **options: Any) -> AsyncIterator[Storage]:
    """Open the folder at an fsspec URL, with the filesystem's options.

    Raises:
        ValueError: the URL is invalid.
        PluginError: a package that the filesystem requires is not installed.
        StorageError: the filesystem cannot be opened.
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
    # "file+NAME" is reserved for drivers of local files, whose paths are percent-decoded.
    named = [f"{name}+fsspec" for name in (*_OTHERS, *own) if name != "file"]
    return [StorageFactory(name="fsspec", schemes=(*own, *named), open=open_filesystem)]
