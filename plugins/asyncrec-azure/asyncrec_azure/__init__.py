"""Azure Blob Storage as a storage backend of asyncrec.

Once this plugin is installed, asyncrec accepts ``az://container/prefix`` and
``abfs://container@account.dfs.core.windows.net/prefix`` wherever it accepts a path. `asyncrec_azure.options.Options`
lists the options. The Azure SDK is imported only when the first such path is opened.
"""
