"""Fits, kills, full disks, bad files, empty partitions and users beside each other, for as long as asked.

``make soak MINUTES=10 SEED=0`` prints a line for every incident and ends with code 1 if anything was lost,
left behind, or wrong without a word. The folder of a violation stays.
"""

import argparse
import gc
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import incidents
from world import World


def main(minutes, seed):
    """Run incidents in a random order until the time is over; return the number of violations."""
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    chosen, left_out = incidents.possible()
    say(f"seed {seed}, {minutes:g} minutes, in {folder}")
    if left_out:
        say(f"left out: full disks, since there are {left_out}")
    counts = soak(World(folder, seed), chosen, minutes * 60, random.Random(seed))
    for (name, well), times in sorted(counts.items()):
        say(f"{times:>5} {name}{'' if well else ': VIOLATED'}")
    violations = sum(times for (_, well), times in counts.items() if not well)
    if violations == 0:
        shutil.rmtree(folder)
    say(f"{sum(counts.values())} incidents, {violations} violations")
    return violations


def soak(world, chosen, seconds, chance):
    """Counts of incidents by name and whether they went well; every one comes up before any comes twice."""
    begun, counts = time.monotonic(), Counter()
    while True:
        for incident in chance.sample(chosen, len(chosen)):
            passed = time.monotonic() - begun
            if passed > seconds and counts:
                return counts
            well, words = tried(incident, world)
            counts[incident.__name__, well] += 1
            say(f"{passed:7.1f} s  {incident.__name__}: {words}")


def tried(incident, world):
    """Whether an incident went well, and what happened."""
    descriptors = open_descriptors()
    try:
        words = incident(world)
    except Exception:
        return False, f"VIOLATION\n{traceback.format_exc()}"
    gc.collect()
    return open_descriptors() <= descriptors + 8, f"{words}"


def open_descriptors():
    """Files that this process holds open, where the system tells."""
    folder = Path("/proc/self/fd")
    return len(os.listdir(folder)) if folder.is_dir() else 0


def say(words):
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    sys.exit(1 if main(asked.minutes, asked.seed) else 0)
