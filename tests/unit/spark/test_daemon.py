"""The daemon of Spark's Python workers: where it takes PySpark from."""

from __future__ import annotations

from pathlib import Path

import pyspark

from statecore.spark.daemon import without_zips

ROOT = Path(pyspark.__file__).parents[1]
LIB = ROOT / "pyspark" / "python" / "lib"


def test_an_installed_pyspark_is_not_taken_out_of_its_zip() -> None:
    zips = [str(one) for one in sorted(LIB.glob("*.zip"))]
    assert len(zips) == 2
    assert without_zips(["/work", *zips, "/usr/lib/python311.zip", str(ROOT)]) == [
        "/work",
        "/usr/lib/python311.zip",
        str(ROOT),
    ]


def test_the_zip_of_another_spark_stays(tmp_path: Path) -> None:
    of_spark = [str(tmp_path / "spark" / "python" / "lib" / name) for name in ("pyspark.zip", "py4j-0.10-src.zip")]
    assert without_zips([*of_spark, str(ROOT)]) == [*of_spark, str(ROOT)]


def test_a_zip_elsewhere_is_kept() -> None:
    path = ["pyspark.zip", "/app/pyspark.zip", "/pyspark.zip", str(ROOT)]
    assert without_zips(path) == path


def test_it_stays_where_the_executors_python_does_not_have_it_on_its_path() -> None:
    zips = [str(one) for one in LIB.glob("*.zip")]
    assert without_zips([*zips, "/elsewhere"]) == [*zips, "/elsewhere"]
