"""BLEU by sacrebleu, for translations that are right, nearly right, short, long, empty and full of signs.

    python3 -m pip install sacrebleu==2.6.0
    python3 tests/golden/bleu.py                         # writes tests/models/bleu/cases.json

[{"translations": [...], "references": [...], "score": ..., "precisions": [...], "brevity_penalty": ...,
"tokens": [[...], ...]}]; tokens are those of the translations."""
import json
import pathlib
import random

from sacrebleu.metrics import BLEU

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINES = [line for line in (ROOT / "examples" / "data" / "tinyshakespeare.txt").read_text(encoding="utf-8").split("\n") if line]
SIGNS = ["He paid $1,234.56, i.e. 3.5% (of 10-20)...", "a,b .c 1.a a.1 1,a ,,.. 5-6 x-7 8-y -9", "&quot;Tom &amp; J&apos;s&quot; &lt;b&gt;",
         "<skipped> it's {one} [two] `three` ~ ^ _ \\ / | @ # ; : ! ? * + = < >", "Zürich, 中文。 «œuvre» – „ja“ …", "\u00a0a\u2003b\u3000c\u200bd\u1680e\u0085f\x1cg",
         "...", "1.", ".1", "é.é,é é.1 1.é", "", "   ", "x .", "a-\u00e9 1-é-2"]
generator = random.Random(7)


def damaged(line, share):
    words = line.split()
    for i in range(len(words)):
        if generator.random() < share:
            words[i] = generator.choice(["the", "", ",", words[i] + "s", generator.choice(LINES).split()[0]])
    return " ".join(words)


sets = [(LINES[:40], LINES[:40]), *(([damaged(line, share) for line in LINES[:60]], LINES[:60]) for share in (0.1, 0.3, 0.6, 0.9)),
        ([line[: len(line) // 2] for line in LINES[:30]], LINES[:30]), ([line + " and so on" for line in LINES[:30]], LINES[:30]),
        (SIGNS, SIGNS), (SIGNS, SIGNS[1:] + SIGNS[:1]), ([""], ["a b c d"]), (["a b c"], ["a b c"]), (["a b c d"], [""]),
        (["one two three four five"], ["six seven"]), (["a a a a a a"], ["a a b c d e"]), (["the cat sat on a mat"], ["a mat the cat sat"]),
        (["b a c a d"], ["a b c d e f"])]
cases = []
bleu = BLEU()
for translations, references in sets:
    result = bleu.corpus_score(translations, [references])
    cases.append({"translations": translations, "references": references, "score": result.score,
                  "precisions": result.precisions, "brevity_penalty": result.bp,
                  "tokens": [bleu._preprocess_segment(line).split() for line in translations]})
assert str(bleu.get_signature()).startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp")
folder = ROOT / "tests" / "models" / "bleu"
folder.mkdir(parents=True, exist_ok=True)
(folder / "cases.json").write_text(json.dumps(cases, ensure_ascii=False) + "\n", encoding="utf-8")
