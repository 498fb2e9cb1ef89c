"""Runs the tests with one mutant active at a time: the tests that reach its site, the most likely to kill it first."""

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

SITE_LIMIT = 1 << 20  # as in mutant.h
FIRST_BATCH = 1  # tests in the first process; each further one runs three times as many


class Mutant:
    def __init__(self, site, kind):
        self.site, self.kind = site, kind
        self.killer, self.how = None, None  # the test; "test", "crash" or "time"

    def code(self):
        return 2 * self.site.number + (self.kind == "drop")

    def place(self):
        return f"{self.site.path}:{self.site.line}"


class Test:
    def __init__(self, program, name, seconds):
        self.program, self.name, self.seconds = program, name, seconds
        self.reached = set()


class Trial:
    def __init__(self, folder, programs, jobs):
        self.folder, self.programs, self.jobs = folder, programs, jobs
        self.tests, self.known, self.failing = [], set(), []
        self.kills = {}  # by file and test: how many it killed and how many it met

    def execute(self, program, arguments, code, limit, **variables):
        """`limit`: CPU seconds, which do not depend on other work; the clock detects a deadlock."""
        environment = dict(os.environ, ORRERY_MUTANT=str(code), ORRERY_SECONDS=str(limit), OPENBLAS_NUM_THREADS="1",
                           **variables)
        command = [os.path.join(self.folder, program), *arguments]
        try:
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  stdin=subprocess.DEVNULL, timeout=30 * limit, check=False, cwd=self.folder)
        except subprocess.TimeoutExpired:
            return None, ""
        if done.returncode == -signal.SIGXCPU:
            return None, ""
        return done.returncode, done.stdout.decode(errors="replace")

    def trace(self):
        """Runs each test without a mutant; records whether it passes, its time and the sites that it reaches."""
        reached = os.path.join(self.folder, "reached")
        with open(reached, "wb") as stream:
            stream.truncate(SITE_LIMIT)
        for program in self.programs:
            status, output = self.execute(program, ["--trace"], 1, 3600, ORRERY_REACHED=reached)
            if status != 0:
                raise SystemExit(f"{program} ends with {status} although no mutant is active")
            for line in output.splitlines():
                word, _, rest = line.partition(" ")
                if word == "known":
                    self.known |= {int(n) for n in rest.split()}
                elif word == "test":
                    seconds, passed, name = rest.split(" ", 2)
                    self.tests.append(Test(program, name, float(seconds)))
                    if passed == "0":
                        self.failing.append(self.tests.pop())
                        self.tests.append(None)
                elif word == "reached" and self.tests[-1]:
                    self.tests[-1].reached = {int(n) for n in rest.split()}
        self.tests = [t for t in self.tests if t]

    def order(self, mutant):
        """Returns the tests that reach the mutant, sorted by the expected cost of a kill."""
        met = self.kills.setdefault(mutant.site.path, {})

        def cost(test):
            killed, tried = met.get(test.name, (0, 0))
            return (test.seconds + 0.05) * (tried + 2) / (killed + 1)

        return sorted((t for t in self.tests if mutant.site.number in t.reached), key=lambda t: (cost(t), t.name))

    def run(self, mutant):
        queue, size = self.order(mutant), FIRST_BATCH
        met = self.kills[mutant.site.path]
        while queue:
            batch = [t for t in queue[:size] if t.program == queue[0].program]
            queue = [t for t in queue if t not in batch]
            size *= 3
            limit = int(10 + 10 * sum(t.seconds for t in batch))
            status, output = self.execute(batch[0].program, ["--run", *(t.name for t in batch)], mutant.code(), limit)
            if status != 0:
                name = output.strip().splitlines()[-1] if status == 1 and output.strip() else batch[0].name
                mutant.killer = next((t for t in batch if t.name == name), batch[0])
                mutant.how = "time" if status is None else "crash" if status != 1 else "test"
            for test in batch:
                killed, tried = met.get(test.name, (0, 0))
                met[test.name] = (killed + (test is mutant.killer), tried + 1)
                if test is mutant.killer:
                    return

    def run_all(self, mutants, log):
        last = time.monotonic()
        done = 0
        with ThreadPoolExecutor(self.jobs) as pool:
            for _ in pool.map(self.run, mutants):
                done += 1
                if time.monotonic() - last > 30:
                    last = time.monotonic()
                    log(f"{done} of {len(mutants)} mutants")
