"""By this module's name Spark finds the data source ``asyncrec`` by itself."""

from asyncrec.integrations.spark import AsyncrecDataSource as DefaultSource

__all__ = ["DefaultSource"]
