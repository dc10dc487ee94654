"""Spark with two threads on this machine: the same candidates as here."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone

import tailproof as tp
from pieces_data import assert_same, chunks_of, rows, table_of
from robust_pieces import CATEGORIES, SmallSample, assert_close, table_with_categories
from tailproof.data.dealing import Dealing
from tailproof.data.engines import spark as engine
from tailproof.data.engines.spark import rounds
from tailproof.data.training import Training

pytestmark = [
    # PySpark knows pandas up to version 2; nothing of pandas is used here.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
PIECES = 3


@pytest.fixture(scope="module")
def data():
    return rows(1_500)


@pytest.fixture(scope="module")
def frame(spark, data, tmp_path_factory):
    """One partition for each file; the files differ in size, which is the order in which Spark takes them."""
    folder = tmp_path_factory.mktemp("spark")
    frames = []
    for number, (X, y) in enumerate(chunks_of(*data, PIECES)):
        pq.write_table(table_of(X, y), folder / f"{number}.parquet")
        frames.append(spark.read.parquet(str(folder / f"{number}.parquet")))
    whole = frames[0]
    for more in frames[1:]:
        whole = whole.union(more)
    return whole


@pytest.mark.parametrize(
    "model",
    [
        tp.DCSGDRegressor(rounds=(5, 4), random_state=3, max_iter=1, learner="truncated"),
        tp.RVSGDRegressor(k=4, random_state=3, max_iter=1, mean="median_of_means", learner="momentum"),
    ],
)
def test_same_blocks_same_candidates(frame, data, model):
    far = tp.fit(model, frame)
    assert list(far.feature_names_in_) == ["x0", "x1", "x2", "x3"]
    assert_same(far, tp.fit(clone(model), chunks_of(*data, PIECES), shuffle=False))
    X, y = data
    expected = X @ far.coef_ + far.intercept_
    r2 = 1 - ((y - expected) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    assert tp.score(far, frame) == pytest.approx(r2, rel=1e-9)


def test_far_rows_are_left_out_as_from_chunks(frame, data):
    functions = pytest.importorskip("pyspark.sql.functions")
    X, y = data[0].copy(), data[1]
    limit = np.sort(X[:, 1])[-10]
    X[X[:, 1] > limit, 1] = 1e9
    spoilt = frame.withColumn("x1", functions.when(frame.x1 > limit, 1e9).otherwise(frame.x1))
    model, here = (tp.DCSGDRegressor(k=3, random_state=3, max_iter=1) for _ in range(2))
    with pytest.warns(tp.TwoPopulationsWarning, match="9 of all 1,500 rows"):
        assert_same(tp.fit(model, spoilt), tp.fit(here, chunks_of(X, y, PIECES), shuffle=False))
    assert model.report_.far_rows == here.report_.far_rows == 9


def test_a_robust_regressor_is_the_same_as_from_chunks(frame, data):
    class Smaller(SmallSample):
        _tuning = replace(SmallSample._tuning, compared_rows=500)

    far = tp.fit(Smaller(random_state=0), frame)
    assert_close(far, tp.fit(Smaller(random_state=0), chunks_of(*data, 2)))
    assert far.report_.compared == 500
    assert "all 1,500 rows" in str(far.report_)


def test_categories_give_a_robust_regressor_the_same_model_as_files(spark, tmp_path):
    whole, frames = table_with_categories(9_000, grows=True), []
    for number, start in enumerate(range(0, 9_000, 3_000)):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(whole.slice(start, 3_000), path)
        frames.append(spark.read.parquet(str(path)))
    here = tp.fit(SmallSample(random_state=0), tmp_path, categories=CATEGORIES)
    far = tp.fit(
        SmallSample(random_state=0), frames[0].union(frames[1]).union(frames[2]), categories=CATEGORIES
    )
    assert list(far.feature_names_in_) == list(here.feature_names_in_)
    assert_close(far, here)
    assert "all 9,000 rows" in str(far.report_)
    far.__class__ = tp.RobustRegressor  # workers know nothing of this folder
    predicted = [row["prediction"] for row in tp.predict(far, frames[2]).select("prediction").collect()]
    expected = tp.predict(here, tmp_path / "2.parquet")
    np.testing.assert_allclose(predicted, expected, rtol=0, atol=1e-10)


def test_large_partitions_are_not_taken_together(frame, data, monkeypatch):
    """A candidate goes from partition to partition."""
    monkeypatch.setattr(engine, "_LARGEST", 1)
    model = tp.DCSGDRegressor(k=2, random_state=3, max_iter=1)
    assert_same(tp.fit(model, frame), tp.fit(clone(model), chunks_of(*data, PIECES), shuffle=False))
    model, more = tp.DCSGDRegressor(k=1, random_state=3, max_iter=1), {"workers_per_candidate": 3}
    here = tp.fit(clone(model), chunks_of(*data, PIECES), shuffle=False, **more)
    assert_same(tp.fit(model, frame, **more), here)


def test_predictions_are_one_more_column(frame, data):
    X, y = data
    model = tp.fit(tp.DCSGDRegressor(k=3, random_state=0, max_iter=1), chunks_of(X, y, PIECES))
    found = tp.predict(model, frame, ["x0", "x1", "x2", "x3"])
    assert found.columns == ["x0", "x1", "x2", "x3", "y", "prediction"]
    predicted = np.array([row["prediction"] for row in found.select("prediction").collect()])
    np.testing.assert_allclose(predicted, X @ model.coef_ + model.intercept_, rtol=1e-9)


def test_columns_of_vectors_and_arrays(spark, frame, data):
    from pyspark.ml.feature import VectorAssembler
    from pyspark.sql import functions

    X, y = data
    parts = VectorAssembler(inputCols=["x0", "x1"], outputCol="features").transform(frame)
    parts = parts.withColumn("rest", functions.array("x2", "x3")).select("features", "rest", "y")
    model = tp.fit(tp.DCSGDRegressor(k=3, random_state=3, max_iter=1), parts, features=["features", "rest"])
    assert model.feature_names_in_.tolist() == ["features_0", "features_1", "rest_0", "rest_1"]
    plain = tp.DCSGDRegressor(k=3, random_state=3, max_iter=1)
    assert_same(model, tp.fit(plain, chunks_of(X, y, PIECES), shuffle=False))
    found = tp.predict(model, parts.limit(20).coalesce(1))
    assert found.columns == ["features", "rest", "y", "prediction"]
    predicted = [row["prediction"] for row in found.select("prediction").collect()]
    np.testing.assert_allclose(predicted, (X @ model.coef_ + model.intercept_)[:20], rtol=1e-9)
    uneven = spark.createDataFrame([([1.0, 2.0], 1.0), ([1.0], 2.0)], "rest array<double>, y double")
    with pytest.raises(ValueError, match="'rest' holds vectors of 1 and of 2 numbers"):
        tp.fit(tp.DCSGDRegressor(k=1), uneven)
    taken = parts.withColumn("rest_1", functions.lit(1.0))
    with pytest.raises(ValueError, match="'rest_1' has the name of a number of a vector column"):
        tp.fit(tp.DCSGDRegressor(k=1), taken)


def test_classes_bad_rows_and_shuffle(spark, data):
    X, y = data
    labels = np.where(y > np.median(y), "high", "low")
    records = [(*map(float, x), str(label)) for x, label in zip(X[:600], labels[:600], strict=True)]
    order = np.argsort(labels[:600])
    schema = "a double, b double, c double, d double, label string"
    frame = spark.createDataFrame([records[i] for i in order], schema).coalesce(1).repartition(2, "label")
    model = tp.fit(tp.DCSGDClassifier(k=2, random_state=0, max_iter=1), frame, "label", shuffle=True)
    assert model.classes_.tolist() == ["high", "low"]
    holes = spark.createDataFrame([*records[:50], (1.0, None, 2.0, 3.0, "low")], schema).coalesce(1)
    with pytest.raises(ValueError, match=r"partition 0: column 'b' is missing"):
        tp.fit(tp.DCSGDClassifier(k=2), holes, "label")


def test_partitions_without_rows_do_not_vote(spark, data):
    X, y = data
    records = [(*map(float, x), float(v), i // 125) for i, (x, v) in enumerate(zip(X, y, strict=True))]
    schema = "x0 double, x1 double, x2 double, x3 double, y double, day int"
    whole = spark.createDataFrame(records, schema).repartitionByRange(6, "day")
    kept = whole.filter("day < 4")
    features = ["x0", "x1", "x2", "x3"]
    model = tp.fit(tp.DCSGDRegressor(k=4, random_state=0), kept, features=features)
    assert model.report_.k == 4
    assert model.report_.block_sizes.min() > 0
    assert model.report_.block_sizes.sum() == 500
    here = tp.DCSGDRegressor(random_state=0).fit(X[:500], y[:500])
    assert tp.score(model, whole) > 0.9 * here.score(X, y)


def test_errors_of_spark_are_one_sentence(spark):
    from pyspark.sql import functions

    def broken(value):
        raise ZeroDivisionError("no such exchange rate")

    frame = spark.range(40).select(
        functions.udf(broken, "double")("id").alias("x"), functions.lit(1.0).alias("y")
    )
    with pytest.raises(RuntimeError, match=r"could not read the data: .*no such exchange rate") as told:
        tp.fit(tp.DCSGDRegressor(k=2), frame)
    assert len(str(told.value).splitlines()) == 1
    gone = spark.range(40).selectExpr("assert_true(id < 5, 'rows are gone') as x", "1.0D as y")
    with pytest.raises(RuntimeError, match=r"could not read the data: .*rows are gone") as told:
        tp.fit(tp.DCSGDRegressor(k=2), gone)
    assert len(str(told.value).splitlines()) == 1


def test_rounds_take_every_block_through_its_pieces_in_order():
    for pieces, k, whole, branches in [(7, 3, True, 1), (3, 7, True, 1), (4, 3, False, 1), (14, 3, True, 4)]:
        dealing = Dealing(k, pieces, 0, whole_pieces=whole)
        training = Training(None, dealing, 1, branches=branches)
        met = {j: [] for j in range(k * branches)}
        for active in rounds(training):
            busy = [j for blocks in active.values() for j in blocks]
            assert len(busy) == len(set(busy))
            for piece, blocks in active.items():
                for j in blocks:
                    met[j].append(piece)
        for j in range(k * branches):
            assert met[j] == [piece for piece in dealing.visits(1) if j in training.blocks(piece)]
            assert met[j]


def test_a_pass_is_one_job_with_a_task_for_each_partition(spark, data, monkeypatch):
    """Also where there are more partitions than blocks; and tiny partitions are taken together."""
    X, y = data
    records = [(*map(float, x), float(value)) for x, value in zip(X, y, strict=True)]
    frame = spark.createDataFrame(records, "x0 double, x1 double, x2 double, x3 double, y double")
    whole, jobs = engine.run_job, []

    def counted(frame, task, pieces, doing):
        results = whole(frame, task, pieces, doing)
        jobs.append(len(results))
        return results

    monkeypatch.setattr(engine, "run_job", counted)
    model = tp.fit(tp.DCSGDRegressor(k=2, random_state=0, max_iter=2), frame.repartition(5))
    assert model.report_.block_sizes.sum() == 1_500
    # A first look, a count of the rows of two larger partitions, and two passes of one job each.
    assert jobs == [5, 2, 2, 2]
    assert model.report_.data == "2 Spark partitions"
    here = tp.DCSGDRegressor(k=2, random_state=0).fit(X, y).predict(X)
    there = X @ model.coef_ + model.intercept_
    assert np.mean((there - here) ** 2) < 0.05 * np.var(y)
    assert not spark.sparkContext._jsc.getPersistentRDDs()
    jobs.clear()
    many = tp.fit(tp.DCSGDRegressor(k=4, random_state=0, max_iter=2), frame.repartition(40))
    assert many.report_.data == "4 Spark partitions"
    assert jobs == [8, 4, 4, 4]
    assert many.report_.block_sizes.sum() == 1_500


def tasks_of(spark, group, work):
    """Tasks of every stage that some work has run."""
    spark.sparkContext.setJobGroup(group, group)
    work()
    tracker = spark.sparkContext.statusTracker()
    stages = {
        number for job in tracker.getJobIdsForGroup(group) for number in tracker.getJobInfo(job).stageIds
    }
    return [tracker.getStageInfo(number).numTasks for number in sorted(stages)]


@pytest.mark.parametrize("persisted", [True, False])
def test_many_tiny_partitions_cost_few_tasks(spark, tmp_path, persisted):
    """Spark's estimate of the size tells how many are worth a task, before a job has run."""
    X, y = rows(1_500)
    pq.write_table(table_of(X, y), tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet")).repartition(60)
    if persisted:
        frame = frame.persist()
        frame.count()
    fitted = []

    def work():
        fitted.append(tp.fit(tp.DCSGDRegressor(k=12, random_state=0, max_iter=2), frame))

    tasks = tasks_of(spark, f"tiny-{persisted}", work)
    frame.unpersist()
    assert max(tasks) <= 8
    assert sum(tasks) <= 5 * 8
    assert fitted[0].report_.data == "8 Spark partitions"
    assert fitted[0].report_.block_sizes.sum() == 1_500


def test_rows_whose_size_spark_does_not_know_are_counted(spark, data):
    X, y = data
    records = [(*map(float, x), float(value)) for x, value in zip(X, y, strict=True)]
    known = spark.sparkContext.parallelize(records, 20)
    frame = spark.createDataFrame(known, "x0 double, x1 double, x2 double, x3 double, y double")
    assert engine._estimated_size(frame) > 10**15
    model = tp.fit(tp.DCSGDRegressor(k=12, random_state=0, max_iter=1), frame)
    assert model.report_.data == "8 Spark partitions"
    assert model.report_.block_sizes.sum() == 1_500


def test_a_stage_of_a_pipeline(frame, data, tmp_path):
    """Columns and weights by name, parameters, persistence, and predictions beside those of another stage."""
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.feature import VectorAssembler
    from pyspark.sql import functions

    from tailproof.spark import SparkDCSGDRegressor

    labelled = frame.withColumnRenamed("y", "label").withColumn("weight", functions.lit(2.0)).coalesce(1)
    assembler = VectorAssembler(inputCols=["x0", "x1", "x2", "x3"], outputCol="features")
    stage = SparkDCSGDRegressor(k=1, random_state=3, max_iter=4, loss=("huber", 2.0), weightCol="weight")
    assert stage.getOrDefault("delta") == 0.05
    assert stage.copy({stage.k: 5}).getOrDefault("k") == 5
    stage.save(str(tmp_path / "stage"))
    stage = SparkDCSGDRegressor.load(str(tmp_path / "stage"))
    fitted = Pipeline(stages=[assembler, stage.setPredictionCol("expected")]).fit(labelled)
    fitted.write().overwrite().save(str(tmp_path / "fitted"))
    again = PipelineModel.load(str(tmp_path / "fitted"))
    model, (X, y) = again.stages[1].estimator, data
    assert (model.k, model.loss) == (1, ("huber", 2.0))
    here = tp.DCSGDRegressor(loss=("huber", 2.0), random_state=0).fit(X, y).predict(X)
    assert np.mean((X @ model.coef_ + model.intercept_ - here) ** 2) < 0.1 * np.var(y)
    other = assembler.transform(labelled.limit(20)).withColumnRenamed("features", "four")
    other = other.withColumn("prediction", functions.lit(0.5)).drop("weight", "label")
    found = again.stages[1].setFeaturesCol("four").transform(other)
    assert found.columns == ["x0", "x1", "x2", "x3", "four", "prediction", "expected"]
    values = np.array([[*row[:4], *row[5:]] for row in found.collect()])
    np.testing.assert_allclose(values[:, 5], values[:, :4] @ model.coef_ + model.intercept_, rtol=1e-9)
    assert set(values[:, 4]) == {0.5}
    with pytest.raises(ValueError, match="has a column 'x0' already"):
        again.stages[1].setPredictionCol("x0").transform(other)
    with pytest.raises(TypeError, match="has no parameter 'alpa'"):
        SparkDCSGDRegressor(alpa=1.0)


def test_stages_leave_out_rows_with_missing_values_if_asked(frame):
    from pyspark.sql import functions

    from tailproof.spark import SparkDCSGDRegressor

    missing = functions.when(functions.col("x3") > 1.0, None).otherwise(functions.col("y"))
    holes = frame.select(functions.array("x0", "x1", "x2", "x3").alias("features"), missing.alias("label"))
    stage = SparkDCSGDRegressor(k=2, random_state=0, max_iter=2)
    with pytest.raises(ValueError, match="on_missing='drop'"):
        stage.fit(holes)
    assert stage.copy({stage.on_missing: "drop"}).fit(holes).estimator.report_.dropped_rows > 0
    with pytest.raises(ValueError, match="no column 'paid': set featuresCol, labelCol"):
        stage.setLabelCol("paid").fit(holes)


def test_parameters_do_not_hide_what_spark_has():
    Estimator = pytest.importorskip("pyspark.ml").Estimator
    from tailproof import spark as module

    stages = [getattr(module, name) for name in module.__all__ if name != "SparkModel"]
    assert len(stages) == 5
    for stage in stages:
        assert not set(stage._defaults) & set(dir(Estimator))


def test_a_python_worker_killed_in_mid_task(frame, data, monkeypatch, tmp_path):
    """Spark runs the task again, from the same partition and the same candidate."""
    train, died = engine._train_piece, str(tmp_path / "died")

    def dies_once(training, sent, piece, batches):
        import os
        import signal

        if piece == 1 and not os.path.exists(died):
            open(died, "w").close()
            next(batches)
            os.kill(os.getpid(), signal.SIGKILL)
        return train(training, sent, piece, batches)

    monkeypatch.setattr(engine, "_train_piece", dies_once)
    model = tp.fit(tp.DCSGDRegressor(k=4, random_state=3, max_iter=2), frame)
    assert (tmp_path / "died").exists()
    here = tp.DCSGDRegressor(k=4, random_state=3, max_iter=2)
    assert_same(model, tp.fit(here, chunks_of(*data, PIECES), shuffle=False))
