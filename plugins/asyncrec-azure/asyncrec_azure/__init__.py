"""Azure Blob Storage as a storage backend of asyncrec.

Installed, it answers to ``az://container/prefix`` and ``abfs://container@account.dfs.core.windows.net/prefix`` wherever
asyncrec takes a path. The options are those of `asyncrec_azure.options.Options`. Nothing heavy is imported before the
first such path is opened.
"""
