"""Azure Blob Storage as a storage backend of asyncrec.

Once installed, it serves ``az://container/prefix`` and ``abfs://container@account.dfs.core.windows.net/prefix``
wherever asyncrec accepts a path. The options are those of `asyncrec_azure.options.Options`. Nothing heavy is imported
before the first such path is opened.
"""
