"""Start a job on a machine without this package: download the package from a store, and run a module of it.

    spark-submit launch.py backstream.jobs.replay --plan s3://bucket/home/runs/..

The variable `BACKSTREAM_PACKAGE` has the address of the package. This file runs alone, so it imports nothing of
backstream.
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys
import tempfile
from pathlib import Path

from pyarrow.fs import S3FileSystem, resolve_s3_region


def main() -> None:
    """Download the package, and run the module in the first argument with the other arguments."""
    path = os.environ["BACKSTREAM_PACKAGE"].partition("://")[2]
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or resolve_s3_region(path.partition("/")[0])
    store = S3FileSystem(endpoint_override=endpoint, region=region)
    archive = Path(tempfile.mkdtemp(prefix="backstream-")) / Path(path).name
    with store.open_input_stream(path) as stream, archive.open("wb") as file:
        shutil.copyfileobj(stream, file)
    sys.path.insert(0, str(archive))
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
