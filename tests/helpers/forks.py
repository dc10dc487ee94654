"""Calls in processes of their own, forked from one interpreter that has imported everything once."""

import subprocess
import sys

_LOOP = """
import os, signal, sys
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        signal.alarm(300)  # so that nobody waits for ever
        work(*line.rstrip("\\n").split("\\t"))
        sys.stdout.flush()
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Forks:
    """``code`` defines ``work(*texts)``; every ``start`` calls it in a new process."""

    def __init__(self, code):
        command = [sys.executable, "-c", code + _LOOP]
        self.parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.parent.stdin.close()
        self.parent.stdout.close()
        self.parent.wait(60)

    def start(self, *arguments):
        """Return the number of the process."""
        print(*arguments, sep="\t", file=self.parent.stdin, flush=True)
        return int(self.parent.stdout.readline())

    def wait(self):
        """Return the exit code of the last one, negative where a signal ended it."""
        return int(self.parent.stdout.readline())
