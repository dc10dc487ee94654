"""Model files with something wrong inside and a right checksum; as a script, thousands of them.

``PYTHONPATH=src python tests/helpers/model_fuzz.py 10000`` says how many were refused, how many loaded and
work, and which did neither; then its exit code is 1.
"""

import copy
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import tailproof as tp
from tailproof.model_files.files import ModelFileError, checksum
from tailproof.tables.model import fit_table, prepare

rng = np.random.default_rng(0)
N = 120
TABLE = pa.table(
    {
        "size": pa.array(rng.standard_normal(N), mask=rng.random(N) < 0.1),
        "colour": rng.choice(["red", "blue", "green"], N),
        "cost": rng.standard_normal(N),
        "label": rng.choice(["yes", "no", "maybe"], N),
    }
)
X = rng.standard_normal((N, 3))
WRONG = [
    None, True, 0, -1, 1, 3, 2**40, 10**400, 0.5, -1e308, "", "x", "nan", "classes_", "y" * 5_000, [], {},
    {"#": "float", "text": "nan"}, {"#": "float", "text": "1e5"}, {"#": "tuple", "items": []},
    {"#": "dict", "pairs": []}, {"#": "array", "tensor": "0"}, {"#": "array", "tensor": "1"},
    {"#": "text", "items": ["a"], "shape": [1]}, {"#": "object", "items": [None], "shape": [1]},
    {"#": "slice", "parts": [0, 2**60, 1]}, {"#": "Ball", "state": {"radius": 1.0}},
    {"#": "Nothing", "state": {}}, [[]],
]  # fmt: skip


def models():
    """Fitted models, each with rows that it predicts for."""
    y, labels = X.sum(axis=1), np.where(X[:, 0] > 0, "a", "b")
    chains = make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge()).fit(X, y)
    voted = tp.RobustValidation(make_pipeline(StandardScaler(), LogisticRegression()), k=3, random_state=0)
    return [
        (fit_table(prepare(TABLE, "cost"), "dc", {"random_state": 0, "k": 5}), TABLE),
        (fit_table(prepare(TABLE, "cost"), "auto", {"random_state": 0}), TABLE),
        (fit_table(prepare(TABLE, "label"), "rv", {"random_state": 0, "k": 3}), TABLE),
        (tp.DCSGDClassifier(k=3, random_state=0).fit(X, labels), X),
        (voted.fit(X, labels), X),
        (chains, X),
    ]


def saved(folder):
    """Contents of their files, with the rows."""
    found = []
    for model, rows in models():
        tp.save(model, Path(folder) / "whole")
        found.append(((Path(folder) / "whole").read_bytes(), rows))
    return found


def nodes(tree, path=()):
    """Paths to everything in a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from nodes(value, (*path, key))


def mutated(content, chance):
    """A file with one to three things changed in its tree or its tensors."""
    tensors = load_tensors(content)
    length = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["tailproof"])
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        if tensors and chance.random() < 0.3:
            change_tensor(tensors, chance)
        else:
            change_tree(header, chance)
    text = json.dumps(header)
    return save_tensors(tensors, metadata={"tailproof": text, "sha256": checksum(text, tensors)})


def change_tree(header, chance):
    *path, last = chance.choice(list(nodes(header)))
    parent = header
    for key in path:
        parent = parent[key]
    how = chance.randrange(5)
    if how == 0:
        del parent[last]
    elif how == 1 and isinstance(parent, list):
        parent.insert(last, copy.deepcopy(parent[last]))
    elif how == 2:
        other = header
        for key in chance.choice(list(nodes(header))):
            other = other[key]
        parent[last] = copy.deepcopy(other)
    elif how == 3 and isinstance(parent[last], (int, float)):
        parent[last] = parent[last] * chance.choice([-1, 2, 1e9]) + chance.choice([0, 1])
    else:
        parent[last] = copy.deepcopy(chance.choice(WRONG))


def change_tensor(tensors, chance):
    name = chance.choice(sorted(tensors))
    array = tensors[name].copy()
    how = chance.randrange(6)
    if how == 0 and array.size and array.dtype.kind == "f":
        array.flat[chance.randrange(array.size)] = chance.choice([np.nan, np.inf, -np.inf, 1e308])
    elif how == 1:
        array = array[:-1] if array.ndim else array.reshape(1)
    elif how == 2:
        array = np.concatenate([array, array]) if array.ndim else array
    elif how == 3:
        array = (
            array.astype(chance.choice([np.float32, np.int64, np.bool_]))
            if np.isfinite(array).all()
            else array
        )
    elif how == 4:
        array = array[None]
    else:
        array = np.empty((0, *array.shape[1:]), array.dtype)
    tensors[name] = np.ascontiguousarray(array)


def inner_rows(model, rows):
    """Rows as the estimator inside sees them."""
    return model.encoding.matrix(rows) if hasattr(model, "encoding") else rows


def outcome(path, rows):
    """Whether a file was "refused" in one line, "works", or what is wrong with it."""
    try:
        model = tp.load(path)
    except ModelFileError as error:
        return "refused" if "\n" not in str(error) and len(str(error)) < 600 else "a long error"
    except Exception as error:
        return f"load raised {type(error).__name__}: {error}"
    try:
        predicted = model.predict(rows) if hasattr(model, "predict") else model.transform(rows)
        values = predicted["prediction"] if isinstance(predicted, dict) else predicted
        if len(values) != N:
            return "too few predictions"
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            return "predicts NaN"
        inner = getattr(model, "estimator", model)
        if hasattr(inner, "coef_") and hasattr(inner, "summary"):
            str(inner.summary())
        if hasattr(inner, "held_out_errors_"):
            inner.predict_interval(
                inner_rows(model, rows), 0.9, scaled=inner.held_out_errors_.noise is not None
            )
        if hasattr(model, "encoding"):
            (
                str(model.estimator.report_),
                model.estimator.report_.verdict(),
                model.estimator.report_.sections(),
            )
    except Exception as error:
        # A table that lacks a column of the changed encoding is told so.
        if type(error).__name__ == "TableError":
            return "works"
        return f"predict raised {type(error).__name__}: {error}"
    return "works"


def main(count, seed=0):
    outcomes, chance = Counter(), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        contents = saved(folder)
        for number in range(count):
            content, rows = contents[number % len(contents)]
            path = Path(folder) / "changed"
            path.write_bytes(mutated(content, chance))
            outcomes[outcome(path, rows)] += 1
    for words, times in outcomes.most_common():
        sys.stdout.write(f"{times:>7,}  {words[:300]}\n")
    return sum(times for words, times in outcomes.items() if words not in ("refused", "works"))


if __name__ == "__main__":
    asked = [int(number) for number in sys.argv[1:]]
    sys.exit(1 if main(*asked or [10_000]) else 0)
