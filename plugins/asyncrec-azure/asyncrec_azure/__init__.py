"""A storage backend for Azure Blob Storage.

Once this plugin is installed, asyncrec accepts ``az://container/prefix`` and
``abfs://container@account.dfs.core.windows.net/prefix`` wherever it accepts a path. The options are those of
`asyncrec_azure.options.Options`. The Azure SDK is imported when the first such path is opened.
"""
