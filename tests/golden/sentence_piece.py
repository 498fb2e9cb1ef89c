"""Pieces from the library's own Python package, for SentencePiece models.

    python3 -m pip install sentencepiece==0.2.3
    python3 tests/golden/sentence_piece.py               # writes tests/models/sentence_piece/*, trained on Tiny Shakespeare

tests/models/sentence_piece/small.model: pairs merged to 400 pieces, with bytes for unknown characters; cases.json:
[{"text": ..., "tokens": [...], "decoded": ...}]."""
import io
import json
import pathlib

import sentencepiece

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "models" / "sentence_piece"
LINES = (ROOT / "examples" / "data" / "tinyshakespeare.txt").read_text(encoding="utf-8").split("\n")[:4000]
TEXTS = ["", " ", "First Citizen: Before we proceed any further, hear me speak.", "  two  spaces\tand a tab ", "12,345.67",
         "naïve café, Ελλάδα, 中文 👩‍👩‍👧", "\u2581already", "a" * 100, "line\nbreak", "fi ligature ﬁ ½ Å", "\u0000x"]

model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(LINES), model_writer=model, vocab_size=400, model_type="bpe",
                                         byte_fallback=True, normalization_rule_name="identity", minloglevel=2)
HERE.mkdir(parents=True, exist_ok=True)
(HERE / "small.model").write_bytes(model.getvalue())
processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
cases = [{"text": text, "tokens": processor.encode(text), "decoded": processor.decode(processor.encode(text))} for text in TEXTS]
(HERE / "cases.json").write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
