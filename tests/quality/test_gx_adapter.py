"""The import of Great Expectations leaves out modules that few checks need; these checks load them."""

from __future__ import annotations

import json
import subprocess
import sys

CHILD = """
import json, sys
import pandas as pd
from backstream.quality.gx_adapter import ExpectationFrames, import_library

import_library()
after_import = sorted({"altair", "scipy.stats", "grpc", "pyspark.sql.connect"} & sys.modules.keys())
frame = pd.DataFrame({"page": ["home", "home", "cart", "cart"]})
type_name = "expect_column_kl_divergence_to_be_less_than"
weights = {"values": ["home", "cart"], "weights": [0.5, 0.5]}
kwargs = {"partition_object": weights, "threshold": 0.1, "column": "page"}
result = ExpectationFrames({"clicks": frame}).validate("clicks", type_name, kwargs)
import scipy.stats
import pyspark.sql.connect.session
print(json.dumps([after_import, result.is_met, result.error, round(scipy.stats.norm.cdf(0), 3)]))
"""


def test_modules_that_few_checks_need_are_loaded_by_these_checks() -> None:
    ended = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == [[], True, "", 0.5]
