"""numpy computes a sweep's table from the logs of its runs.

    python3 -m pip install numpy
    python3 tests/golden/sweep_table.py build/orrery

Twelve small runs are trained; the mean and the spread of each row over its seeds, and the paired differences with
their 95 % interval, must be those of table.csv to 1e-9.  The last line reads "N passed, N failed".
"""
import csv
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
TEXT = pathlib.Path(__file__).resolve().parents[2] / "examples/data/tinyshakespeare.txt"
passed = failed = 0


def check(what, found, expected):
    global passed, failed
    if math.isclose(float(found), expected, rel_tol=1e-9, abs_tol=1e-9):
        passed += 1
    else:
        failed += 1
        print(f"{what}: {found}, not {expected}")


def quantile(degrees):
    """x with P(|t| <= x) = 0.95: by bisection over the integral of Student's density."""
    scale = math.gamma((degrees + 1) / 2) / (math.sqrt(degrees * math.pi) * math.gamma(degrees / 2))

    def inside(x):
        angle, weight = numpy.polynomial.legendre.leggauss(200)  # t = tan(angle), so that the range is bounded
        end = math.atan(x)
        t = numpy.tan(end * angle)
        return end * numpy.sum(weight * scale * (1 + t * t / degrees) ** (-(degrees + 1) / 2) * (1 + t * t))

    low, high = 0.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < 0.95 else (low, middle)
    return low


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    subprocess.run([PROGRAM, "sweep", "--model=gpt-char-small", f"--data={TEXT}", "--layers=1", "--width=16", "--heads=2",
                    "--context=32", "--steps=30", "--evaluate_every=0", "--checkpoint_every=0",
                    "--attention={softmax,pointwise(relu)}", "--normalization={layer,rms}", "--seed={1..3}",
                    f"--out={folder}/sweep", f"--runs={folder}/pool"], check=True, capture_output=True)
    losses = {}  # of each row, by seed, from the runs' own logs
    for run in csv.DictReader(open(folder / "sweep/runs.csv")):
        rows = [json.loads(line) for line in open(folder / "pool" / run["run"] / "metrics.jsonl")]
        last = [row["validation_loss"] for row in rows if "validation_loss" in row][-1]
        losses.setdefault(run["row"], {})[run["seed"]] = last
    table = list(csv.DictReader(open(folder / "sweep/table.csv")))
    check("rows", len(table), 4)
    first = losses[table[0]["row"]]
    for row in table:
        of_row = losses[row["row"]]
        values = numpy.array(list(of_row.values()))
        check(f"{row['row']}: seeds", row["seeds"], len(values))
        check(f"{row['row']}: mean", row["mean"], values.mean())
        check(f"{row['row']}: deviation", row["deviation"], values.std(ddof=1))
        if of_row is first:
            continue
        differences = numpy.array([of_row[seed] - first[seed] for seed in of_row])
        half = quantile(len(differences) - 1) * differences.std(ddof=1) / math.sqrt(len(differences))
        check(f"{row['row']}: difference", row["difference"], differences.mean())
        check(f"{row['row']}: low", row["low"], differences.mean() - half)
        check(f"{row['row']}: high", row["high"], differences.mean() + half)

print(f"{passed} passed, {failed} failed")
sys.exit(failed != 0)
