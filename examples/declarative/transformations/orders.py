"""New files of orders go to a dataset by their ids. The format "fsspeckit" is known to Spark once it is installed."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
folder = spark.conf.get("orders.folder")

dp.create_sink("orders", "fsspeckit", {"path": f"{folder}/lake/orders", "keys": "id", "strategy": "upsert"})


@dp.append_flow(target="orders")
def new_orders() -> DataFrame:
    """Return the rows of files that the flow has not read yet."""
    reader = spark.readStream.schema("id BIGINT, status STRING, amount DECIMAL(12, 2)").option("header", "true")
    return reader.csv(f"{folder}/in")
