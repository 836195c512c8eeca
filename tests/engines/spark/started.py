"""Start the smallest possible Spark on this machine."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from asyncrec.integrations.spark import AsyncrecDataSource

__all__ = ["start"]


def start() -> Any:
    session = (
        SparkSession.builder.master("local[2,2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    session.dataSource.register(AsyncrecDataSource)
    return session
