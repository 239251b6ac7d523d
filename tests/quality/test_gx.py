"""Importing Great Expectations: what few checks need is loaded by those checks."""

from __future__ import annotations

import json
import subprocess
import sys

CHILD = """
import json, sys
import pandas as pd
from backstream.quality.gx_adapter import answer, batches, import_library

import_library()
after_import = sorted({"altair", "scipy.stats", "grpc", "pyspark.sql.connect"} & sys.modules.keys())
frame = pd.DataFrame({"page": ["home", "home", "cart", "cart"]})
(batch,) = batches({"clicks": frame}).values()
of = {"partition_object": {"values": ["home", "cart"], "weights": [0.5, 0.5]}, "threshold": 0.1, "column": "page"}
found = answer(batch, "expect_column_kl_divergence_to_be_less_than", of, frame)
import scipy.stats
import pyspark.sql.connect.session
print(json.dumps([after_import, found.is_met, found.error, round(scipy.stats.norm.cdf(0), 3)]))
"""


def test_what_few_checks_need_is_loaded_by_those_checks() -> None:
    ended = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == [[], True, "", 0.5]
