"""examples/orrery.py reads a run as its files say: settings, log, weights, analyses, values and pages.

    python3 -m pip install numpy
    python3 tests/golden/runs_in_python.py build/orrery

The last line reads "N passed, N failed".
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))
import orrery  # noqa: E402

PROGRAM = os.environ["ORRERY"] = str(pathlib.Path(sys.argv[1]).resolve())
TEXT = ROOT / "examples/data/tinyshakespeare.txt"
passed = failed = 0


def check(what, holds):
    global passed, failed
    passed, failed = passed + bool(holds), failed + (not holds)
    if not holds:
        print(f"FAILED: {what}")


def error(what, work, *words):
    try:
        work()
        check(f"{what}: an error", False)
    except (orrery.Error, KeyError) as found:
        check(f"{what}: {found}", all(word in str(found) for word in words))


with tempfile.TemporaryDirectory() as folder:
    for name, dtype in ("run", "f32"), ("bf16", "bf16"):
        subprocess.run([PROGRAM, "train", "--model=gpt-char-small", f"--data={TEXT}", "--layers=2", "--width=32", "--heads=2",
                        "--context=16", "--batch_size=2", "--steps=6", "--evaluate_every=3", "--checkpoint_every=3",
                        "--keep_checkpoints=0", f"--dtype={dtype}", f"--out={folder}/{name}"], capture_output=True)
    run = orrery.Run(f"{folder}/run")
    check("settings", run.settings["layers"] == 2 and run.settings["steps"] == 6)
    rows = [json.loads(line) for line in open(f"{folder}/run/metrics.jsonl")]
    for name in "loss", "validation_loss":
        steps, values = run.log[name]
        found = [(row["step"], row[name]) for row in rows if name in row]
        check(f"the log's {name}", list(zip(steps.tolist(), values.tolist())) == found)
    check("checkpoints", run.checkpoints == [3, 6])
    head = "\n".join(line.strip() for line in orrery.__doc__.splitlines() if line.startswith("    "))
    for given, here in ("runs/mine", f"{folder}/run"), ("attention.3*0", "attention.1*0"):
        assert given in head
        head = head.replace(given, here)
    exec(head, {})  # ends the test if it cannot run
    at_3 = orrery.Run(f"{folder}/run/step_000003")
    check("a checkpoint", all(numpy.array_equal(at_3.tensors()[name], each) for name, each in run.tensors(3).items()))
    check("a checkpoint's run", at_3.settings == run.settings and at_3.checkpoints == [3, 6] and "loss" in at_3.log)
    for own in "html", "json", "out":
        error(f"inspect of {own}", lambda: run.inspect(**{own: "no"}), f"leave {own} out")
    embedding = "token_embedding.weight"
    check("weights by step", not numpy.array_equal(run.tensors(3)[embedding], run.tensors()[embedding]))
    check("shapes", run.tensors()["blocks.1.attention.output.weight"].shape == (32, 32))
    check("the optimizer", any(name.endswith(embedding) for name in run.tensors(optimizer=True)))
    rounded = orrery.Run(f"{folder}/bf16").tensors()[embedding]
    check("bf16", rounded.dtype == numpy.float32 and not (rounded.view(numpy.uint32) & 0xFFFF).any() and rounded.any())

    words = ["--text=To be", "--analysis=predictions,attention,heads,logit_lens,components", "--hooks=logits,blocks.0.attention.weights"]
    plain = json.loads(subprocess.run([PROGRAM, "inspect", run.folder, "--json=yes", *words], check=True,
                                      capture_output=True, text=True).stdout)
    found = run.inspect(**dict(word[2:].split("=", 1) for word in words))
    check("metrics", found.metrics == plain["metrics"] and len(found.metrics) > 10)
    check("views", [view.title for view in found.views] == [view["title"] for view in plain["views"]])
    for view, its in zip(found.views, plain["views"]):
        if view.kind == "map":
            expected = numpy.array([each["values"] for each in its["maps"]], float)
            check(view.title, numpy.array_equal(view.values, expected, equal_nan=True) and view.rows == its["rows"] and
                  view.values.shape == (len(view.names), len(view.rows), len(view.columns)))
        if view.kind == "lines":
            check(view.title, all(len(x) == len(y) for x, y in view.lines.values()) and view.lines)
        if view.kind == "lens":
            check(view.title, numpy.array_equal(view.rank, numpy.array(its["rank"], float), equal_nan=True) and
                  view.probability.shape == (len(view.rows), len(view.columns)) and view.words == its["words"])
        if view.kind == "choices":
            check(view.title, len(view.choices) == len(view.positions) == len("To be") and
                  view.choices[0][0][1] == its["choices"][0][0]["probability"])
        if view.kind == "components":
            check("components", view.components["blocks.0.attention"]["formulas"][0]["name"] == "softmax" and
                  view.components[""]["parameters"] == sum(x.size for x in run.tensors().values()))
    lists = run.inspect(text="To be", analysis=["heads", "logit_lens"], hooks=["logits"], begin=False)
    check("lists, yes and no", lists.metrics == run.inspect(text="To be", analysis="heads,logit_lens").metrics)
    weights = found.axes["blocks.0.attention.weights"]
    check("axes of weights", weights == [("batch", []), ("head", []), ("position", list("To be".replace(" ", "␣"))),
                                         ("key", list("To be".replace(" ", "␣")))])
    names = found.axes["logits"][2]
    check("names of logits", names[0] == "choice" and len(names[1]) == found.values["logits"].shape[2] and "e" in names[1])
    check("kinds", {"components", "map", "lens", "tokens", "choices"} <= {view.kind for view in found.views})
    attention = next(view for view in found.views if view.kind == "map")
    check("a view by its title", found[attention.title] is attention)
    check("rows of softmax", numpy.allclose(numpy.nansum(found.values["blocks.0.attention.weights"], -1), 1, atol=1e-6))
    check("maps are the weights", numpy.allclose(attention.values[0][~numpy.isnan(attention.values[0])],
                                                 found.values["blocks.0.attention.weights"][0, 0][~numpy.isnan(attention.values[0])]))
    whole, part = found._repr_html_(), attention._repr_html_()
    check("pages", "<iframe" in whole and attention.title in part and len(part) < len(whole))
    check("a heading", {view.analysis for view in found[attention.analysis].views} == {attention.analysis})
    without = run.inspect(text="To be", edits="logits=0", hooks="logits")
    check("edits", not without.values["logits"].any() and without._repr_html_() is None)

    error("another run", lambda: orrery.Run(f"{folder}/none"), "none")
    error("another step", lambda: run.tensors(4), "step 4", "[3, 6]")
    error("another view", lambda: found["heds"], "heds", "Heads")
    error("another setting", lambda: run.inspect(txt="To be"), "txt")
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
