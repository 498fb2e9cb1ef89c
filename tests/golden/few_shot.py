"""numpy and, if it is there, scikit-learn solve the probes of orrery evaluate --few_shot again.

    python3 -m pip install numpy
    python3 tests/golden/few_shot.py build/orrery

A small model of images is trained; its last layer is evaluated, and one with more features than there are shots.  From
the exported features, labels and shots: the weights of each seed must be those of the closed form in f64
(numpy.linalg.solve) and those of scikit-learn's Ridge, to 1e-5 of the largest; accuracies, and the strengths by folds
of the shots, must be equal.  The last line reads "N passed, N failed".
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy

try:
    from sklearn.linear_model import Ridge
except ImportError:
    Ridge = None
    print("scikit-learn is not available: numpy's closed form is the only comparison")

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
IMAGES = pathlib.Path(__file__).resolve().parents[2] / "tests/models/images/fashion"
SHOTS, SEEDS, CLASSES = 4, 3, 10
passed = failed = 0


def check(what, is_right):
    global passed, failed
    passed += bool(is_right)
    failed += not is_right
    if not is_right:
        print(f"{what}: differs")


def run(*arguments):
    ended = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)
    if ended.returncode not in (0, 3):  # 3: a short training may end worse than a guess
        sys.exit(ended.stderr)
    return ended.stdout


def read_safetensors(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header, numbers = json.loads(data[8:8 + length]), data[8 + length:]
    dtypes = {"F64": numpy.float64, "F32": numpy.float32, "I32": numpy.int32}
    return {name: numpy.frombuffer(numbers[slice(*its["data_offsets"])], dtypes[its["dtype"]]).reshape(its["shape"])
            for name, its in header.items() if name != "__metadata__"}


def inputs_of(shots):
    """The map from features to whitened inputs with a constant, by the shots' mean and deviation."""
    mean, deviation = shots.mean(axis=0), shots.std(axis=0) + 1e-5
    return lambda x: numpy.hstack([(x - mean) / deviation, numpy.full((len(x), 1), 100.0)])


def targets_of(labels):
    return 2.0 * numpy.eye(CLASSES)[labels] - 1


def closed_form(x, y, strength):
    return numpy.linalg.solve(x.T @ x + strength * numpy.eye(x.shape[1]), x.T @ y)


def correct(x, weights, labels):
    return int(numpy.sum(numpy.argmax(x @ weights, axis=1) == labels))


def chosen_strength(x, labels):
    fold, most = numpy.arange(len(x)) % SHOTS % min(5, SHOTS), {}
    for exponent in range(-10, 20):
        most[exponent] = 0
        for held_out in range(min(5, SHOTS)):
            kept = fold != held_out
            inputs = inputs_of(x[kept])
            weights = closed_form(inputs(x[kept]), targets_of(labels[kept]), 2.0 ** exponent)
            most[exponent] += correct(inputs(x[~kept]), weights, labels[~kept])
    return 2.0 ** max(most, key=lambda exponent: (most[exponent], exponent))


def close(found, expected):
    return numpy.abs(found - expected).max() <= 1e-5 * numpy.abs(expected).max()


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    run("train", "--model=vit", "--layers=2", "--heads=2", "--width=16", "--patch=7", f"--data={IMAGES}", "--steps=150",
        "--batch_size=12", "--learning_rate=1e-2", "--evaluate_every=0", "--checkpoint_every=0", f"--out={folder}/run")
    for layer in ("", "blocks.0.feed_forward.hidden"):  # 16 and 64 features for 40 shots: both forms of the solution
        out = folder / f"features{len(layer)}.safetensors"
        options = [f"--features={layer}"] if layer else []
        printed = json.loads(run("evaluate", f"{folder}/run", f"--few_shot={SHOTS}", f"--seeds={SEEDS}", "--json",
                                 f"--out={out}", *options).splitlines()[-1])["few_shot"]
        tensors = read_safetensors(out)
        train, labels = tensors["train.features"], tensors["train.labels"]
        test, test_labels = tensors["test.features"], tensors["test.labels"]
        accuracies = []
        for seed in range(1, SEEDS + 1):
            what = f"{layer or 'last layer'}, seed {seed}"
            rows, weights = tensors[f"seed.{seed}.shots"], tensors[f"seed.{seed}.weights"]
            x, y = train[rows], labels[rows]
            check(f"{what}: shots", sorted(y) == sorted(list(range(CLASSES)) * SHOTS) and len(set(rows)) == len(rows))
            strength = tensors["strengths"][seed - 1]
            check(f"{what}: strength", strength == chosen_strength(x, y))
            inputs = inputs_of(x)
            check(f"{what}: weights", close(weights, closed_form(inputs(x), targets_of(y), strength)))
            if Ridge:
                ridge = Ridge(alpha=strength, fit_intercept=False, solver="cholesky").fit(inputs(x), targets_of(y))
                check(f"{what}: scikit-learn's weights", close(weights, ridge.coef_.T))
            accuracies.append(correct(inputs(test), weights, test_labels) / len(test_labels))
            check(f"{what}: accuracy", abs(tensors["accuracies"][seed - 1] - accuracies[-1]) < 1e-12)
        check(f"{layer}: mean", abs(printed["accuracy"] - numpy.mean(accuracies)) < 1e-12)
        check(f"{layer}: deviation", abs(printed["deviation"] - numpy.std(accuracies, ddof=1)) < 1e-12)

print(f"{passed} passed, {failed} failed")
sys.exit(failed != 0)
