"""Incidents of a soak: each disturbs something, and demands a right answer or a sentence."""

import shutil
import signal
from pathlib import Path

import numpy as np
import work
from world import ViolationError, require, small_disks

import tailproof as tp
from damage import damaged
from model_fuzz import mutated, outcome, saved
from pieces_data import chunks_of, rows

KILL, INTERRUPT = signal.SIGKILL, signal.SIGINT
BUSY = "another process fits with the checkpoint"
SLOW = 0.02  # seconds for each batch


def killed_fit(world):
    """After any number of kills, a fit with a checkpoint finds the result it would have found."""
    form, place, kills = (
        world.chance.choice(["files", "sorted"]),
        world.new_folder(),
        world.chance.randint(1, 4),
    )
    for _ in range(kills):
        child = world.fit(form, checkpoint=str(place / "mark"), checkpoint_seconds=0.0, pause=SLOW)
        world.pause(1.2)
        child.strike(KILL)
        child.end()
    record = world.fit(form, checkpoint=str(place / "mark"), checkpoint_seconds=0.0).end()
    world.check_right(record, form, with_checkpoint=True)
    world.check_nothing_left(place)
    return f"{form}, {kills} kills, right"


def killed_without_checkpoint(world):
    """What a killed fit leaves in the temporary folder, the next one removes."""
    form = world.chance.choice(["sorted", "chunks", "tables"])
    child = world.fit(form, pause=SLOW)
    world.pause(1.0)
    child.strike(KILL)
    child.end()
    world.check_right(world.fit(form).end(), form)
    world.check_nothing_left()
    return f"{form}, the next fit is right"


def interrupted_fit(world):
    """Ctrl-C leaves nothing but the checkpoint, and that is good."""
    form, place = world.chance.choice(["files", "sorted"]), world.new_folder()
    child = world.fit(form, checkpoint=str(place / "mark"), checkpoint_seconds=0.0, pause=SLOW)
    world.pause(1.2)
    child.strike(INTERRUPT)
    record = _ended_by_interrupt(child)
    left = [path.name for path in place.iterdir()]
    require(not any(name.startswith(".") for name in left), f"Ctrl-C left {left}")
    world.check_right(world.fit(form, checkpoint=str(place / "mark")).end(), form, with_checkpoint=True)
    world.check_nothing_left(place)
    return f"{form}, {record}, then right"


def _ended_by_interrupt(child):
    """Outcome of a process that was interrupted, perhaps before or after its job."""
    try:
        record = child.end()
    except ViolationError as violation:
        if "exit code" not in str(violation):
            raise
        return "before its job"  # the interpreter itself was interrupted
    return record["outcome"] if record else "before its job"


def killed_save(world):
    """A model file is whole at any time, and what killed saves leave is removed by the next."""
    place = world.new_folder()
    path = str(place / "model")
    child = world.start("save", path=path, times=10_000)
    world.pause(1.5)
    child.strike(KILL)
    child.end()
    if Path(path).exists():
        require(world.do("load", path=path).get("known"), "a model file is not what was saved")
    require(world.do("save", path=path, times=1)["outcome"] == "done", "the next save failed")
    world.check_nothing_left(place, "model")
    return "whole"


def full_temporary_folder(world):
    """Rows that do not fit into the temporary folder are refused, and nothing of them stays."""
    form, size = world.chance.choice(["sorted", "chunks", "tables"]), world.chance.choice([4, 16, 60, 100])
    record, left = world.on_small_disk(size, "fit", temporary="{disk}", data=world.data, form=form)
    told = record["outcome"] == "refused" and "set TMPDIR to a" in record["words"]
    require(told and "\n" not in record["words"], f"a full disk: {record}")
    require(not left, f"a full disk keeps {left}")
    return f"{form} on {size} kB: {record['error']}"


def full_disk_for_the_checkpoint(world):
    """A disk that takes no checkpoint is told: at the start, or when it fills up; then the fit goes on."""
    size, options = world.chance.choice([4, 40, 300]), {"checkpoint": "{disk}/mark", "checkpoint_seconds": 0}
    fill = {"fill": "{disk}"} if size == 300 else {}
    record, left = world.on_small_disk(size, "fit", data=world.data, form="files", **options, **fill)
    if fill:
        world.check_right(record, "files", with_checkpoint=True)
    words = record["warnings"] if fill else [record.get("words", "")]
    require(any("cannot write the checkpoint" in some for some in words), f"a full disk: {record}")
    require([Path(path).name for path in left] == ["ballast"] * len(fill), f"a full disk keeps {left}")
    return f"{size} kB: {record['outcome']}"


def full_disk_for_sorted_rows(world):
    """Rows that do not fit beside the checkpoint are refused, and nothing of them stays."""
    options = {"checkpoint": "{disk}/mark", "checkpoint_seconds": 0}
    record, left = world.on_small_disk(
        world.chance.choice([72, 100, 130, 160]), "fit", data=world.data, form="sorted", **options
    )
    require("give a checkpoint in a folder on a larger disk" in record.get("words", ""), f"full: {record}")
    require(not left, f"a full disk keeps {left}")
    return "refused"


def full_disk_for_a_model(world):
    """A model that does not fit beside the one before is refused, and that one stays."""
    record, left = world.on_small_disk(4, "save", path="{disk}/model", times=2)
    require(record["outcome"] == "refused" and record["error"] == "OSError", f"a full disk: {record}")
    require([Path(path).name for path in left] == ["model"], f"a full disk keeps {left}")
    return f"refused: {record['words'][:40]}"


def bad_model_files(world):
    """Model files that were changed or damaged are refused in a sentence, or work."""
    place, found = world.new_folder(), []
    contents = saved(place)
    for number in range(30):
        content, given = contents[number % len(contents)]
        change = world.chance.choice([mutated, damaged])
        (place / "changed").write_bytes(change(content, world.chance))
        found.append(outcome(place / "changed", given))
        require(found[-1] in ("refused", "works"), f"a model file that was changed: {found[-1]}")
    shutil.rmtree(place)
    return f"{found.count('refused')} refused, {found.count('works')} work"


def bad_data_file(world):
    """A file that is cut or is none is named, and left out where that is asked for."""
    place, number = world.new_folder(), world.chance.randrange(work.PIECES)
    shutil.copytree(world.data / "files", place / "files")
    bad = sorted((place / "files").iterdir())[number]
    content = bad.read_bytes()
    # Of the last one the footer is whole, and pages are not.
    damage = world.chance.choice([content[: len(content) // 2], b"", b"no table", content[:4] + content[9:]])
    bad.write_bytes(damage)
    refused = world.do("fit", data=str(place), form="files")
    named = refused["outcome"] == "refused" and bad.name in refused["words"] and "\n" not in refused["words"]
    require(named, f"a bad file: {refused}")
    skipped = world.do("fit", data=str(place), form="files", on_bad_file="skip")
    require(skipped["outcome"] == "done" and skipped["skipped"] == [str(bad)], f"a skipped file: {skipped}")
    if damage[-4:] == b"PAR1":
        return f"{bad.name} named, read as far as it goes"
    bad.unlink()
    without = world.do("fit", data=str(place), form="files")
    require(without["digest"] == skipped["digest"], "a skipped file changes the result")
    return f"{bad.name} named, skipped"


def swapped_data_file(world):
    """A file that changes during a fit is noticed, or came too late."""
    place = world.new_folder()
    shutil.copytree(world.data / "files", place / "files")
    some = world.chance.choice(sorted((place / "files").iterdir()))
    child = world.start("fit", data=str(place), form="files", pause=SLOW)
    world.pause(1.0)
    other = world.chance.choice(sorted((world.data / "sorted").iterdir()))
    shutil.copy(other, place / "new")
    (place / "new").replace(some)
    record = child.end()
    if record["outcome"] == "refused":
        require("was changed or removed meanwhile" in record["words"], f"a swapped file: {record}")
        return "noticed"
    if record["digest"] == world.right("files", False):
        return "too late to matter"
    require(
        record["digest"] == world.do("fit", data=str(place), form="files")["digest"], "a mixture of files"
    )
    return "early enough to be the data"


def empty_partitions(world):
    """Blocks without rows do not vote, whichever pieces have none."""
    X, y = rows(3_000, seed=world.chance.randrange(1_000))
    parts = chunks_of(X, y, 12)
    kept = [world.chance.random() < 0.4 for _ in parts]
    kept[world.chance.randrange(12)] = True
    empty = [(part_X[:0], part_y[:0]) for part_X, part_y in parts]
    holes = [(np.full_like(part_X, np.nan), part_y) for part_X, part_y in parts]
    absent = world.chance.choice([empty, holes])
    chunks = [part if keep else none for part, none, keep in zip(parts, absent, kept, strict=True)]
    model = tp.DCSGDRegressor(random_state=0)
    tp.fit(model, chunks, shuffle=False, on_missing="drop")
    require(model.report_.block_sizes.min() > 0, "a block without rows votes")
    require(model.report_.block_sizes.sum() == 250 * sum(kept), "rows are lost")
    here = tp.DCSGDRegressor(random_state=0).fit(
        *(np.concatenate([part[i] for part, keep in zip(parts, kept, strict=True) if keep]) for i in (0, 1))
    )
    require(model.score(X, y) > here.score(X, y) - 0.15, f"R² {model.score(X, y)} against {here.score(X, y)}")
    return f"{sum(kept)} of 12 with rows, k = {model.report_.k}"


def concurrent_users(world):
    """Processes that share a temporary folder, a checkpoint and a model file do not harm each other."""
    place, children = world.new_folder(), []
    for _ in range(world.chance.randint(3, 5)):
        kind = world.chance.choice(["checkpoint", "temporary", "temporary", "save"])
        if kind == "checkpoint":
            mark = str(place / "mark")
            child = world.fit("sorted", checkpoint=mark, checkpoint_seconds=0.0, pause=SLOW / 4)
            children.append((kind, "sorted", child))
        elif kind == "temporary":
            form = world.chance.choice(["sorted", "chunks", "tables"])
            children.append((kind, form, world.fit(form, pause=SLOW / 4)))
        else:
            children.append((kind, "", world.start("save", path=str(place / "model"), times=30)))
        world.pause(0.1)
    killed = world.chance.choice([*children, None])
    if killed is not None:
        killed[2].strike(KILL)
    said = [_of_one_user(world, *child, child is killed) for child in children]
    if (place / "model").exists():
        require(
            world.do("load", path=str(place / "model")).get("known"), "a model file is not what was saved"
        )
    world.do("save", path=str(place / "model"), times=1)
    finished = world.fit("sorted", checkpoint=str(place / "mark")).end()
    world.check_right(finished, "sorted", with_checkpoint=True)
    world.check_right(world.fit("chunks").end(), "chunks")
    world.check_nothing_left(place, "model")
    return ", ".join(said)


def _of_one_user(world, kind, form, child, killed):
    record = child.end()
    if record is None:
        require(killed, f"{kind} ended without a word")
        return f"{kind} killed"
    if kind == "checkpoint" and record["outcome"] == "refused":
        require(BUSY in record["words"], f"a checkpoint of another process: {record}")
        return f"{kind} refused"
    if kind == "save":
        require(record["outcome"] == "done", f"a save beside others: {record}")
    else:
        world.check_right(record, form, with_checkpoint=kind == "checkpoint")
    return f"{kind} right"


INCIDENTS = [
    killed_fit,
    killed_without_checkpoint,
    interrupted_fit,
    killed_save,
    bad_model_files,
    bad_data_file,
    swapped_data_file,
    empty_partitions,
    concurrent_users,
]
NEED_SMALL_DISKS = [
    full_temporary_folder,
    full_disk_for_the_checkpoint,
    full_disk_for_sorted_rows,
    full_disk_for_a_model,
]


def possible():
    """Incidents that this machine allows, and why the others are left out."""
    reason = small_disks()
    return (INCIDENTS, f"no small disks here ({reason})") if reason else (INCIDENTS + NEED_SMALL_DISKS, "")
