"""Numbers of tokens from Hugging Face's tokenizers, for byte-level byte-pair encoding.

    python3 -m pip install tokenizers==0.23.3
    python3 tests/golden/byte_pair.py                    # writes tests/models/byte_pair/*, trained on Tiny Shakespeare

tests/models/byte_pair: `gpt2` with vocab.json and merges.txt, `gpt2/tokenizer.json` the same as one file, and
`split/tokenizer.json`, which cuts by an expression of its own, keeps whole pieces and lists merges as pairs;
cases.json: {"gpt2": [{"text": ..., "tokens": [...]}], "split": [...]}."""
import json
import pathlib
import random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "models" / "byte_pair"
CORPUS = ROOT / "examples" / "data" / "tinyshakespeare.txt"
END = "<|endoftext|>"
# As Llama 3 cuts: up to three digits, line ends with what is before them.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")


def awkward_texts():
    generator = random.Random(1)
    characters = [chr(c) for c in [*range(9, 14), *range(32, 127), *range(32, 127), 0x85, 0xA0, 0x1680, 0x180E, 0x2003,
                                   0x2028, 0x3000, 0x1C, 0x1F, 0xE9, 0x3B1, 0x416, 0x5D0, 0x661, 0x4E2D, 0xAC00, 0x1F600,
                                   0x200D, 0xFE0F, 0x301, 0xBD, 0x2160, 0xFEFF, 0, 0x7F, 0xAD]]
    return ["", "First Citizen:\nBefore we proceed any further, hear me speak.\n\n",
            "I'll you're don't we'VE 'LL ''s 's's  'd\n\n\n  x\t\t y   \n z   ",
            f"{END}a{END}{END} b <|endoftex <|{END}|>", "1 22 333 4444 55555.5", "a" * 300 + " " * 300 + "b" + "ab" * 200,
            "naïve café, Ελλάδα, Москва, שלום, 中文 字, 한국어, 👩‍👩‍👧 e\u0301", "\r\n\r\n x \r\n",
            *("".join(generator.choice(characters) for _ in range(200)) for _ in range(8))]


def train(pre_tokenizer):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=[END], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([CORPUS.read_text()[:200_000]], trainer)
    return tokenizer


def write():
    cases = {}
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    for name, cut in (("gpt2", byte_level), ("split", split)):
        folder = HERE / name
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer = train(cut)
        if name == "split":
            changed = json.loads(tokenizer.to_str())
            changed["model"]["ignore_merges"] = True
            tokenizer = Tokenizer.from_str(json.dumps(changed))
        tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
        if name == "gpt2":
            model = json.loads(tokenizer.to_str())["model"]
            (folder / "vocab.json").write_text(json.dumps(model["vocab"], ensure_ascii=False))
            lines = [one if isinstance(one, str) else " ".join(one) for one in model["merges"]]
            (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(lines) + "\n")
        cases[name] = [{"text": text, "tokens": tokenizer.encode(text).ids} for text in awkward_texts()]
    (HERE / "cases.json").write_text(json.dumps(cases, ensure_ascii=False, indent=0) + "\n")


if __name__ == "__main__":
    write()
