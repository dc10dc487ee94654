"""Where passes over the rows run: one machine, Dask, Spark."""
