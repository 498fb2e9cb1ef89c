"""TensorBoard and Python's csv read what `orrery metrics` writes.

    python3 -m pip install tensorboard==2.21.0
    python3 tests/golden/tensorboard_reads.py build/orrery

A small run is trained; every number of its metrics.jsonl must come back from both: of CSV as it was, of TensorBoard
rounded to float32, with its step and the seconds that the steps have taken.  The last line reads "N passed, N failed".
"""
import csv
import io
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
passed = failed = 0


def check(what, found, expected):
    global passed, failed
    if found == expected:
        passed += 1
    else:
        failed += 1
        print(f"{what}: {found}, not {expected}")


def orrery(*words):
    return subprocess.run([PROGRAM, *map(str, words)], check=True, capture_output=True, text=True).stdout


def as_f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def rows_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def check_csv(run):
    rows = rows_of(run)
    table = list(csv.DictReader(io.StringIO(orrery("metrics", run))))
    check("rows of CSV", len(table), len(rows))
    for row, found in zip(rows, table):
        numbers = {key: float(value) for key, value in found.items() if value != ""}
        check(f"CSV at step {row['step']}", numbers, row)


def check_tensorboard(run, folder):
    rows = rows_of(run)
    orrery("metrics", run, "--format=tensorboard", f"--out={folder}")
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    expected, seconds = {}, 0.0
    for row in rows:
        seconds += row.get("step_ms", 0) / 1000
        for key, value in row.items():
            if key != "step":
                expected.setdefault(key, []).append((seconds, row["step"], as_f32(value)))
    check("tags", sorted(events.Tags()["scalars"]), sorted(expected))
    for tag, numbers in expected.items():
        check(f"tag {tag}", [(e.wall_time, e.step, e.value) for e in events.Scalars(tag)], numbers)


with tempfile.TemporaryDirectory() as work:
    work = pathlib.Path(work)
    text = work / "text.txt"
    text.write_text("".join(f"line {i} of a text, {i * 7919 % 101}\n" for i in range(100)))
    run = work / "run"
    orrery("train", f"--data={text}", f"--out={run}", "--layers=1", "--heads=2", "--width=16", "--context=8", "--batch_size=2",
           "--steps=40", "--evaluate_every=10", "--learning_rate=0.01", "--warmup_steps=1")  # enough to learn something
    check_csv(run)
    check_tensorboard(run, work / "board")
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
