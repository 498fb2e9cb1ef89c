#!/usr/bin/env python3
"""Cost of studies: parallel runs compared with runs in sequence, and logged metrics compared with none.

    python3 examples/benchmarks/study_costs.py --orrery build/orrery [--runs 12] [--steps 400] [--rounds 5]

Run it on an idle machine.  Trains gpt-char-small on the text that comes with orrery, in a folder that is removed at the
end: a sweep of `runs` runs; the same sweep, killed half way and restarted; the same runs in sequence, each with all
cores; then rounds of three trainings, with the metrics of steps only, the default metrics, and all metrics every 100
steps, of which the fastest count; last the report of a run.  The last line is "N passed, N failed".
"""
import argparse, pathlib, signal, subprocess, sys, tempfile, time

parser = argparse.ArgumentParser()
parser.add_argument("--orrery", required=True)
parser.add_argument("--runs", type=int, default=12)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--rounds", type=int, default=5)
args = parser.parse_args()
text = pathlib.Path(__file__).resolve().parent.parent / "data" / "tinyshakespeare.txt"
common = ["--model=gpt-char-small", f"--data={text}", f"--steps={args.steps}"]
passed = failed = 0


def judge(what, value, most, unit=""):
    global passed, failed
    good = value <= most
    passed, failed = passed + good, failed + (not good)
    print(f"{what}: {value:.3f}{unit}, at most {most}: {'passed' if good else 'FAILED'}", flush=True)


def timed(*words):
    began = time.monotonic()
    done = subprocess.run([args.orrery, *words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}\n{done.stdout[-2000:]}{done.stderr}")
    return time.monotonic() - began


def finished(pool):
    """Returns the finished runs of a pool: folder, and time when its weights were written."""
    return {path: path.stat().st_mtime_ns for path in pool.glob(f"*/step_{args.steps:06}/weights.safetensors")}


def sweep(folder):
    words = ["sweep", *common, f"--seed={{1..{args.runs}}}", f"--out={folder}/sweep", f"--runs={folder}/pool"]
    side_by_side = timed(*words)
    again = [*words[:-2], f"--out={folder}/killed", f"--runs={folder}/killed-pool"]
    killed = subprocess.Popen([args.orrery, *again], stdout=subprocess.DEVNULL)
    time.sleep(side_by_side / 2)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    time.sleep(1)  # its runs end when the program is gone
    pool = pathlib.Path(folder, "killed-pool")
    before = finished(pool)
    rest = timed(*again)
    after = finished(pool)
    print(f"killed after {side_by_side / 2:.1f} s with {len(before)} runs finished, the rest took {rest:.1f} s")
    if not before:
        sys.exit("no run had finished when it was killed: more --steps or fewer --runs are needed")
    judge("runs of these that were trained again", sum(after.get(path) != when for path, when in before.items()), 0)
    one_by_one = sum(timed("train", *common, f"--seed={seed}", f"--out={folder}/one-{seed}")
                     for seed in range(1, args.runs + 1))
    print(f"{args.runs} runs side by side {side_by_side:.1f} s, one after the other {one_by_one:.1f} s")
    judge("time in parallel, relative to the time in sequence", side_by_side / one_by_one, 0.8)


def logging(folder):
    ways = {"nothing": ["--metrics=none", "--metrics_every=0"], "usual": [], "all": ["--metrics=all"]}
    best = {}
    for number in range(args.rounds):
        for way, words in ways.items():
            out = f"{folder}/{way}-{number}"
            whole = timed("train", *common, "--evaluate_every=0", "--checkpoint_every=0", f"--out={out}", *words)
            best[way] = min(best.get(way, whole), whole)
    print("best of " + ", ".join(f"{way} {seconds:.2f} s" for way, seconds in best.items()))
    judge("default metrics every 100 steps, relative to none", best["usual"] / best["nothing"], 1.01)
    judge("all metrics every 100 steps, relative to none", best["all"] / best["nothing"], 1.03)


with tempfile.TemporaryDirectory() as folder:
    sweep(folder)
    logging(folder)
    judge("report of a run", timed("report", f"{folder}/usual-0", f"--out={folder}/report.html"), 5, " s")
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
