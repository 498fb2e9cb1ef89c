"""Are the tests able to fail?  Flips the sign of each term of each hand-written backward pass, and drops it, one at a
time, and prints which of these mutants the tests kill; or does so with the checks that throw errors and with their
messages.  Started by tests/mutation.sh, which says more."""

import argparse
import hashlib
import os
import sys
import time
from collections import Counter, defaultdict

from errors import diff, find_error_sites
from program import PROGRAMS, Program
from sites import find_sites
from tree import PROGRAMS as ALL_PROGRAMS, Tree
from trial import Mutant, Trial

WANTED_SHARE, WANTED_MUTANTS = 0.95, 400
MUTANTS_OF_A_FILE = 3  # in a sample
KINDS = {"gradients": ("flip", "drop"), "errors": ("gone", "part", "unnamed")}


def parse():
    parser = argparse.ArgumentParser(prog="tests/mutation.sh", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="gradients", help="of backward passes, or of error paths")
    parser.add_argument("--sample", type=int, metavar="N", help="only N mutants")
    parser.add_argument("--seed", type=int, default=1, help="chooses the sample")
    parser.add_argument("--file", metavar="PATTERN", help="only files whose path contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilations and test runs at a time")
    parser.add_argument("--build", default="build", help="the folder of the ordinary build")
    parser.add_argument("--list", action="store_true", help="print the places, or the diffs of errors, and stop")
    return parser.parse_args()


def explanations(path, wanted):
    """Lines of the form  file | function | kind | term | reason  of the wanted kinds; `both` is flip and drop."""
    found = {}
    with open(path, encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip() or line.startswith("#"):
                continue
            parts = [p.strip() for p in line.split(" | ")]
            if len(parts) != 5 or parts[2] not in ("both", *KINDS["gradients"], *KINDS["errors"]):
                raise SystemExit(f"{path}:{number}: needs  file | function | kind | term | reason")
            for kind in set(KINDS["gradients"] if parts[2] == "both" else parts[2:3]) & set(wanted):
                found[(parts[0], parts[1], kind, parts[3])] = parts[4]
    return found


def chosen(items, count, seed, name):
    """`count` items by a hash of their names, so that a sample stays as it is when other files change."""
    if not count:
        return items
    return sorted(items, key=lambda item: hashlib.sha256(f"{seed} {name(item)}".encode()).digest())[:count]


def name_of_site(site):
    return f"{site.path} {site.function} {site.text}"


def sample_of_sites(sites, errors, count, seed):
    """Of .cpp files, because a mutated header would compile many files anew."""
    sites = {path: found for path, found in sites.items() if found and path.endswith(".cpp")}
    if not errors:  # few files, because compiling takes longer than trying
        few = chosen(list(sites), max(1, count // MUTANTS_OF_A_FILE), seed, str)
        return {path: sites[path] for path in few}
    few = set(chosen([s for found in sites.values() for s in found], count, seed, name_of_site))
    return {path: some for path, found in sites.items() if (some := [s for s in found if s in few])}


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

    errors = options.kind == "errors"
    sites = find_error_sites(source) if errors else find_sites(source)
    if options.file:
        sites = {p: s for p, s in sites.items() if options.file in p}
    if options.sample:
        sites = sample_of_sites(sites, errors, options.sample, options.seed)
    if options.list:
        for s in [s for found in sites.values() for s in found]:
            place = f"{s.path}:{s.line}: {s.function}: {' and '.join(s.kinds())}: {s.text}"
            print(f"{place}\n{diff(source, s)}" if errors else place)
        return 0
    reasons = explanations(os.path.join(source, "tests", "mutation", "survivors.txt"), KINDS[options.kind])
    whole = not options.sample and not options.file
    log(f"{sum(len(s) for s in sites.values())} places in {len(sites)} files; compiling them")
    if errors:
        program = Tree(source, os.path.join(build, "mutation_of_errors"), sites, options.jobs)
        program.compile_all(log)
    else:
        program = Program(source, build, os.path.join(build, "mutation"), sites, options.jobs)
        program.compile_all(log)
        program.link()
    for site in program.refused:
        log(f"refused: {site.path}:{site.line}: {site.text}")
    log(f"compiled; {len(program.refused)} places refused; running each test once")
    trial = Trial(program.folder, ALL_PROGRAMS if errors else PROGRAMS, options.jobs)
    trial.trace()
    for test in trial.failing:
        print(f"  fails without a mutant, not used: {test.name}")
    mutants = [Mutant(s, kind) for found in program.sites.values() for s in found if errors or s.number in trial.known
               for kind in s.kinds()]
    if not errors:
        mutants = chosen(mutants, options.sample, options.seed, lambda m: f"{name_of_site(m.site)} {m.kind}")
    log(f"{len(trial.tests)} tests; trying {len(mutants)} mutants")
    trial.run_all(mutants, log)
    log("done")
    reached = set().union(*(t.reached for t in trial.tests))
    passed, failed = report(mutants, reasons, whole, reached)
    print(f"{passed} passed, {failed + len(trial.failing)} failed")
    return 1 if failed or trial.failing else 0


if __name__ == "__main__":
    sys.exit(main())
