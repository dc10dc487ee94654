"""What the processes of a soak do: each ends with a record of what came out, or is killed."""

import hashlib
import json
import os
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

import tailproof as tp
from pieces_data import chunks_of, rows, write_parquet
from tailproof.data import shuffle_on_disk, training

PIECES = 6
SETTINGS = {"k": 4, "max_iter": 3}
COLUMNS = ["x0", "x1", "x2", "x3"]


def make_data(folder):
    """Write the same rows twice, in random order and sorted by the target."""
    X, y = rows(3_000)
    order = np.argsort(y)
    for form, chosen in {"files": np.arange(y.size), "sorted": order}.items():
        (folder / form).mkdir()
        write_parquet(folder / form, chunks_of(X[chosen], y[chosen], PIECES))


def chunks(data):
    """Pairs of arrays that can be read only once."""
    return iter(chunks_of(*rows(3_000), PIECES))


def tables(data):
    """Tables that can be read only once."""
    for X, y in chunks(data):
        yield pa.table({name: X[:, j] for j, name in enumerate(COLUMNS)} | {"y": y})


FORMS = {"files": str, "sorted": str, "chunks": chunks, "tables": tables}


def slowly(function, seconds):
    """The same function after a pause, so that a kill meets it anywhere."""

    def slowed(*arguments):
        time.sleep(seconds)
        return function(*arguments)

    return slowed


def filling(function, folder):
    """The same function after the disk of a folder was filled to the last byte."""
    ballast = []

    def filled(*arguments):
        if not ballast:
            ballast.append(Path(folder) / "ballast")
            with suppress(OSError), open(ballast[0], "wb", buffering=0) as file:
                while file.write(bytes(512)):
                    pass
        return function(*arguments)

    return filled


def fit(data, form, pause=0.0, n_jobs=None, fill=None, **options):
    """Fit on data of a form; a digest of all candidates tells whether the result is right."""
    training.Training.deal_batch = slowly(training.Training.deal_batch, pause)
    if fill is not None:
        training.Training.deal_batch = filling(training.Training.deal_batch, fill)
    shuffle_on_disk._scatter = slowly(shuffle_on_disk._scatter, pause)
    seed = None if "checkpoint" in options else 7
    model = tp.DCSGDRegressor(**SETTINGS, random_state=seed, n_jobs=n_jobs)
    tp.fit(model, FORMS[form](Path(data) / form), batch_rows=200, **options)
    numbers = np.append(model.candidates_.ravel(), model.intercept_)
    report = model.report_
    return {
        "digest": hashlib.sha256(numbers.tobytes()).hexdigest(),
        "coef": model.coef_.tolist(),
        "skipped": list(report.skipped_files),
        "dropped": report.dropped_rows,
        "sizes": report.block_sizes.tolist(),
    }


def models():
    """Two small models that differ."""
    X, y = rows(200)
    return [tp.DCSGDRegressor(k=2, max_iter=1, random_state=seed).fit(X, y) for seed in (0, 1)]


def save(path, times):
    """Save two models in turn under one name."""
    ours = models()
    for number in range(times):
        try:
            tp.save(ours[number % 2], path)
        except OSError:
            if number and not load(path)["known"]:
                raise AssertionError("a save that failed has changed the file") from None
            raise
    return {"saved": times}


def load(path):
    """Load a model that :func:`save` wrote; what it predicts is that of one of the two."""
    model = tp.load(path)
    return {"known": any(np.array_equal(model.coef_, other.coef_) for other in models())}


JOBS = {"fit": fit, "save": save, "load": load}


def run(job, out, temporary, arguments):
    """Do a job and write down what came out: "done", "refused" in a sentence, or "interrupted"."""
    tempfile.tempdir = str(temporary)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            record = {"outcome": "done"} | JOBS[job](**arguments)
        except KeyboardInterrupt:
            record = {"outcome": "interrupted"}
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            record = {"outcome": "refused", "error": type(error).__name__, "words": str(error)}
    record["warnings"] = [str(one.message) for one in said]
    part = Path(f"{out}.part")
    part.write_text(json.dumps(record))
    part.replace(out)


def main():
    """Do the job that the environment describes: for processes with a disk of their own."""
    asked = json.loads(os.environ["SOAK_JOB"])
    run(asked["job"], asked["out"], asked["temporary"], asked["arguments"])


if __name__ == "__main__":
    main()
