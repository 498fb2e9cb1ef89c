"""python3 tests/catalogue.py build/orrery: writes what `orrery list --markdown` prints between the markers of
nn/CATALOGUE.md and models/CATALOGUE.md, after a component was added or changed."""

import pathlib
import subprocess
import sys

BEGIN, END = "<!-- catalogue begin -->\n", "<!-- catalogue end -->"
FIRST_OF_MODELS = "## Tokenizers\n"

root = pathlib.Path(__file__).resolve().parent.parent
printed = subprocess.run([sys.argv[1], "list", "--markdown"], check=True, capture_output=True, text=True).stdout
of_nn, separator, of_models = printed.partition("\n" + FIRST_OF_MODELS)
if not separator:
    sys.exit(f"the catalogue has no {FIRST_OF_MODELS.strip()}, which begins the part of models")
for name, part in (("nn/CATALOGUE.md", of_nn), ("models/CATALOGUE.md", FIRST_OF_MODELS + of_models)):
    page = (root / name).read_text()
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    (root / name).write_text(before + BEGIN + part + END + after)
