"""The world of a soak: folders that processes share, and processes that may be killed."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import work

PATIENCE = 240  # seconds after which a process is taken to hang
HERE = Path(__file__).parent


class ViolationError(Exception):
    """Something was lost, left behind, or wrong without a word."""


def require(fact, otherwise):
    if not fact:
        raise ViolationError(otherwise)


class Child:
    """A process that does one job of :mod:`work`."""

    def __init__(self, process, out):
        self.process, self.out = process, out

    def strike(self, number):
        """Send a signal, if the process is still there."""
        if self.process.is_alive():
            os.kill(self.process.pid, number)

    def end(self):
        """Wait for the end; return the record, None where the process was killed before it had one."""
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            raise ViolationError(f"process {self.process.pid} hangs")
        require(self.process.exitcode in (0, -signal.SIGKILL), f"exit code {self.process.exitcode}")
        return json.loads(self.out.read_text()) if self.out.exists() else None


class World:
    """Folders and processes of a soak.

    Parameters
    ----------
    folder : Path
    seed : int
    """

    def __init__(self, folder, seed):
        self.folder, self.chance = folder, random.Random(seed)
        self.data, self.temporary, self.outs = folder / "data", folder / "tmp", folder / "outs"
        for made in (self.data, self.temporary, self.outs):
            made.mkdir()
        work.make_data(self.data)
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["work", "model_fuzz"])
        self.number, self._right = 0, {}

    def start(self, job, **arguments):
        """Start a job in a process of its own."""
        out = self._new_out()
        process = self.context.Process(target=work.run, args=(job, out, self.temporary, arguments))
        process.start()
        return Child(process, out)

    def do(self, job, **arguments):
        """Do a job in a process of its own, undisturbed."""
        record = self.start(job, **arguments).end()
        require(record is not None, f"{job} was killed by somebody else")
        return record

    def fit(self, form, **options):
        """Start a fit on data of a form."""
        jobs = self.chance.choice([1, 2, 4])
        return self.start("fit", data=str(self.data), form=form, n_jobs=jobs, **options)

    def right(self, form, with_checkpoint):
        """Digest of a fit that nobody disturbed."""
        key = form, with_checkpoint
        if key not in self._right:
            place = self.new_folder()
            options = {"checkpoint": str(place / "mark")} if with_checkpoint else {}
            record = self.do("fit", data=str(self.data), form=form, **options)
            require(record["outcome"] == "done", f"an undisturbed fit: {record}")
            self._right[key] = record["digest"]
        return self._right[key]

    def check_right(self, record, form, with_checkpoint=False):
        """Demand that a fit is done and has the digest of an undisturbed one."""
        require(record is not None and record["outcome"] == "done", f"a fit on {form}: {record}")
        right = self.right(form, with_checkpoint)
        require(record["digest"] == right, f"a fit on {form} is wrong without a word: {record}")

    def on_small_disk(self, kilobytes, job, **arguments):
        """Do a job with ``{disk}`` in its arguments on a small disk; return its record and what is left.

        The disk is a tmpfs in a name space of the process, which goes when the process ends.
        """
        disk, out, left = self.new_folder(), self._new_out(), self._new_out()
        given = json.loads(json.dumps(arguments, default=str).replace("{disk}", str(disk)))
        temporary = given.pop("temporary", str(self.temporary))
        asked = {"job": job, "out": str(out), "temporary": temporary, "arguments": given}
        script = 'mount -t tmpfs -o size="$1"k tmpfs "$2" && "$3" "$4"; find "$2" -mindepth 1 > "$5"'
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
        command += [str(kilobytes), str(disk), sys.executable, str(HERE / "work.py"), str(left)]
        subprocess.run(
            command, env=os.environ | {"SOAK_JOB": json.dumps(asked)}, check=True, timeout=PATIENCE
        )
        require(out.exists(), f"{job} on a small disk left no record")
        return json.loads(out.read_text()), left.read_text().split()

    def new_folder(self):
        """An empty folder."""
        self.number += 1
        made = self.folder / f"place{self.number}"
        made.mkdir()
        return made

    def pause(self, most):
        """Wait for a random time of at most so many seconds."""
        time.sleep(self.chance.uniform(0, most))

    def check_nothing_left(self, place=None, *expected):
        """Demand that the temporary folder, and a folder of a fit, hold only what is expected."""
        found = sorted(path.name for path in self.temporary.iterdir())
        require(not found, f"left in the temporary folder: {found}")
        if place is not None:
            found = sorted(path.name for path in place.iterdir())
            require(found == sorted(expected), f"left in a folder: {found}, expected {sorted(expected)}")

    def _new_out(self):
        self.number += 1
        return self.outs / f"{self.number}.json"


def small_disks():
    """Why there are no small disks here; empty where there are."""
    command = ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return done.stderr.strip() if done.returncode else ""
