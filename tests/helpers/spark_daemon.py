"""The parent of Spark's Python workers, with PySpark from its folder.

Spark puts a zip file of PySpark first, from which every worker compiles all that it imports anew.
"""

import sys

sys.path[:] = [entry for entry in sys.path if not entry.endswith(".zip")]

from pyspark.daemon import manager  # noqa: E402, from the folder

if __name__ == "__main__":
    manager()
