"""Runs that stop early, tell what they do, and survive being killed."""

import functools
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from small_networks import MODULES, SGD, assert_same, images
from tailproof.torch import Candidates

DROPPING = functools.partial(torch.optim.Adam, lr=0.01)
SETTINGS = {
    "plain": {"epochs": 6, "schedule": functools.partial(torch.optim.lr_scheduler.StepLR, step_size=2)},
    "rounds": {"epochs": 2, "rounds": 3, "keep_optimizer": True, "clip_norm": "auto"},
    "early": {"epochs": 6, "patience": 2, "validation_data": images(60, seed=1)},
}


def net():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(36, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 3)
    )


def stop_after(epoch):
    def callback(record, stack):
        if record.epoch == epoch:
            raise KeyboardInterrupt

    return callback


@pytest.mark.parametrize("interrupted", [1, 3, 5])
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_run_goes_on_where_it_stopped(settings, interrupted, tmp_path):
    data, path = images(90), tmp_path / "run"

    def fit(**more):
        found = Candidates(net, 3, average=settings == "early", random_state=0)
        return found.fit(
            data, F.cross_entropy, optimizer=DROPPING, batch_size=8, **(SETTINGS[settings] | more)
        )

    whole = fit()
    with pytest.raises(KeyboardInterrupt):
        fit(checkpoint=path, callbacks=[stop_after(interrupted)])
    seen = []
    resumed = fit(checkpoint=path, callbacks=[lambda record, stack: seen.append(record.epoch)])
    assert seen == list(range(interrupted, len(whole.history) + 1))  # the epoch in which it died is repeated
    for j in range(3):
        for ours, theirs in zip(
            resumed.module(j).state_dict().values(), whole.module(j).state_dict().values(), strict=True
        ):
            assert torch.equal(ours, theirs)
    assert len(resumed.history) == len(whole.history)
    for ours, theirs in zip(resumed.history, whole.history, strict=True):
        assert np.array_equal(ours.training_loss, theirs.training_loss)
    assert [str(r) for r in resumed.rounds] == [str(r) for r in whole.rounds]


PROGRAM = """
import sys, time
import torch
from torch import nn
from tailproof.torch import Candidates
X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
def slow(record, stack):
    print(record.epoch, flush=True)
    time.sleep(0.2)
Candidates(lambda: nn.Linear(4, 1), 3, random_state=0).fit(
    (X, X.sum(dim=1, keepdim=True)), nn.functional.mse_loss,
    epochs=40, checkpoint=sys.argv[1], callbacks=[slow]
)
"""


def test_a_killed_run_goes_on(tmp_path):
    path = tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE, text=True)
    while process.stdout.readline().strip() != "3":
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    data, seen = (X, X.sum(dim=1, keepdim=True)), []

    def fit(**more):
        found = Candidates(lambda: nn.Linear(4, 1), 3, random_state=0)
        return found.fit(data, F.mse_loss, epochs=40, **more)

    resumed = fit(checkpoint=path, callbacks=[lambda record, stack: seen.append(record.epoch)])
    assert seen[0] >= 3
    assert_same(resumed.module(1), fit().module(1))
    assert not list(tmp_path.glob("*.partial")) or seen[0] == 3


def test_checkpoints_of_others_are_refused(tmp_path):
    path, data = tmp_path / "run", images(40)
    Candidates(MODULES["linear"], 2, random_state=0).fit(data, F.cross_entropy, checkpoint=path)
    with pytest.raises(ValueError, match="another fit, which differs in k, random_state"):
        Candidates(MODULES["linear"], 3, random_state=1).fit(data, F.cross_entropy, checkpoint=path)
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"not a checkpoint of Candidates\.fit"):
        Candidates(MODULES["linear"], 2, random_state=0).fit(data, F.cross_entropy, checkpoint=path)
    with pytest.raises(ValueError, match="a checkpoint needs a random_state"):
        Candidates(MODULES["linear"], 2).fit(data, F.cross_entropy, checkpoint=path)


def test_more_epochs_go_on_from_fewer(tmp_path):
    data = images(40)
    fit = functools.partial(Candidates(MODULES["linear"], 2, random_state=0).fit, data, F.cross_entropy)
    fit(epochs=2, checkpoint=tmp_path / "run")
    longer = fit(epochs=5, checkpoint=tmp_path / "run").module(0)
    assert_same(longer, fit(epochs=5).module(0))


def test_history_and_callbacks():
    data, seen = images(90), []
    found = Candidates(MODULES["linear"], 3, random_state=0).fit(
        data,
        F.cross_entropy,
        optimizer=SGD,
        epochs=9,
        validation_data=data,
        callbacks=[lambda record, stack: seen.append(len(stack)), lambda record, stack: record.epoch == 4],
    )
    assert seen == [3] * 4
    assert [record.epoch for record in found.history] == [1, 2, 3, 4]
    assert found.report.passes == 4
    first, last = found.history[0], found.history[-1]
    assert (last.training_loss < first.training_loss).all()
    np.testing.assert_allclose(last.validation_risk, found.select(data).validation.risk, rtol=1e-6)


def test_early_stopping_goes_back_to_the_best_epoch_of_each_candidate():
    X, y = images(40)
    noisy = torch.randint(0, 3, (40,), generator=torch.Generator().manual_seed(0))
    found = Candidates(MODULES["ff"], 2, random_state=0).fit(
        (X, noisy),
        F.cross_entropy,
        optimizer=functools.partial(torch.optim.Adam, lr=0.05),
        epochs=100,
        batch_size=5,
        validation_data=(X, y),
        patience=4,
    )
    risks = np.stack([record.validation_risk for record in found.history])
    assert len(risks) < 100
    assert (risks.argmin(axis=0) <= len(risks) - 5).all()
    np.testing.assert_allclose(found.select((X, y)).validation.risk, risks.min(axis=0), rtol=1e-6)
    with pytest.raises(ValueError, match="patience needs validation_data"):
        found.fit((X, y), F.cross_entropy, patience=2)
