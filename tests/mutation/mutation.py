"""Tests the tests: negates and drops each term of each hand-written backward pass, one at a time, and prints which of
these mutants the tests kill.  Started by tests/mutation.sh, whose head explains it."""

import argparse
import os
import sys
import time
from collections import Counter, defaultdict

from program import Program
from sites import find_sites
from trial import Mutant, Trial

WANTED_SHARE, WANTED_MUTANTS = 0.95, 400
MUTANTS_OF_A_FILE = 3  # in a sample


def parse():
    parser = argparse.ArgumentParser(prog="tests/mutation.sh", description=__doc__)
    parser.add_argument("--sample", type=int, metavar="N", help="only N mutants, spread evenly over all of them")
    parser.add_argument("--file", metavar="PATTERN", help="only files whose path contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilations and test runs at a time")
    parser.add_argument("--build", default="build", help="the folder of the ordinary build")
    parser.add_argument("--list", action="store_true", help="print the sites and stop")
    return parser.parse_args()


def explanations(path):
    """Lines of the form  file | function | kind | term | reason;  kind may be `both`."""
    found = {}
    with open(path, encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip() or line.startswith("#"):
                continue
            parts = [p.strip() for p in line.split(" | ")]
            if len(parts) != 5 or parts[2] not in ("flip", "drop", "both"):
                raise SystemExit(f"{path}:{number}: needs  file | function | flip, drop or both | term | reason")
            for kind in ("flip", "drop") if parts[2] == "both" else (parts[2],):
                found[(parts[0], parts[1], kind, parts[3])] = parts[4]
    return found


def spread(items, count):
    return [items[i * len(items) // count] for i in range(count)] if count and count < len(items) else items


def print_table(mutants):
    rows = defaultdict(Counter)
    for m in mutants:
        rows[m.site.path]["mutants"] += 1
        rows[m.site.path][m.how or "survived"] += 1
        if m.how:
            rows[m.site.path][("by", m.killer.name)] += 1
    print(f"{'file':44} {'mutants':>8} {'killed':>7} {'survived':>9}  most by")
    for path in sorted(rows):
        row = rows[path]
        killers = sorted(((n, k[1]) for k, n in row.items() if isinstance(k, tuple)), key=lambda k: (-k[0], k[1]))
        by = f"{killers[0][1][:60]} ({killers[0][0]})" if killers else ""
        print(f"{path:44} {row['mutants']:8} {row['mutants'] - row['survived']:7} {row['survived']:9}  {by}")


def report(mutants, reasons, whole, reached):
    survivors = [m for m in mutants if not m.how]
    print_table(mutants)
    unexplained, used = [], set()
    if survivors:
        print("\nsurvivors")
    for m in survivors:
        key = (m.site.path, m.site.function, m.kind, m.site.text)
        used.add(key)
        if key not in reasons:
            unexplained.append(m)
        never = "" if m.site.number in reached else " (no test comes here)"
        reason = reasons.get(key, "NOT EXPLAINED")
        print(f"  {m.place()}: {m.kind} | {m.site.function} | {m.site.text}{never}: {reason}")
    for key in sorted(set(reasons) - used) if whole else []:
        print(f"  explained, but no survivor: {' | '.join(key)}")
    how = Counter(m.how for m in mutants if m.how)
    killed = len(mutants) - len(survivors)
    share = killed / len(mutants) if mutants else 0
    by_case = sum(m.how == "test" and m.killer.name.startswith("gradient case") for m in mutants)
    print(f"\n{len(mutants)} mutants, {killed} killed ({100 * share:.1f} %): {by_case} by the gradient case of a name, "
          f"{how['test'] - by_case} by another test, {how['crash']} by a crash, {how['time']} by taking too long; "
          f"{len(survivors)} survived, {len(survivors) - len(unexplained)} of them explained")
    failed = len(unexplained)
    if whole and share < WANTED_SHARE:
        print(f"less than {100 * WANTED_SHARE:.0f} % are killed")
        failed += 1
    if whole and len(mutants) < WANTED_MUTANTS:
        print(f"less than {WANTED_MUTANTS} mutants")
        failed += 1
    return len(mutants) - len(unexplained), failed


def main():
    options = parse()
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    build = os.path.join(source, options.build)
    started = time.monotonic()

    def log(text):
        print(f"[{time.monotonic() - started:4.0f} s] {text}", flush=True)

    sites = find_sites(source)
    if options.file:
        sites = {p: s for p, s in sites.items() if options.file in p}
    if options.list:
        for path, found in sites.items():
            for s in found:
                print(f"{path}:{s.line}: {s.function}: {' and '.join(s.kinds())}: {s.text}")
        return 0
    if options.sample:  # few files, for compiling takes longer than trying; a header would touch many
        few = spread([p for p in sites if p.endswith(".cpp")], max(1, options.sample // MUTANTS_OF_A_FILE))
        sites = {p: sites[p] for p in few}
    reasons = explanations(os.path.join(source, "tests", "mutation", "survivors.txt"))
    whole = not options.sample and not options.file
    log(f"{sum(len(s) for s in sites.values())} places in {len(sites)} files; compiling them")
    folder = os.path.join(build, "mutation")
    program = Program(source, build, folder, sites, options.jobs)
    program.compile_all(log)
    program.link()
    for site in program.refused:
        log(f"refused: {site.path}:{site.line}: {site.text}")
    log(f"compiled {len(program.recompiled)} files, {len(program.refused)} places refused; running each test once")
    trial = Trial(folder, options.jobs)
    trial.trace()
    for test in trial.failing:
        print(f"  fails without a mutant, not used: {test.name}")
    mutants = [Mutant(s, kind) for found in program.sites.values() for s in found if s.number in trial.known
               for kind in s.kinds()]
    mutants = spread(mutants, options.sample)
    log(f"{len(trial.tests)} tests; trying {len(mutants)} mutants")
    trial.run_all(mutants, log)
    log("done")
    reached = set().union(*(t.reached for t in trial.tests))
    passed, failed = report(mutants, reasons, whole, reached)
    print(f"{passed} passed, {failed + len(trial.failing)} failed")
    return 1 if failed or trial.failing else 0


if __name__ == "__main__":
    sys.exit(main())
