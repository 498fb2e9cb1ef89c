"""Small GPT-2, Llama and vision models of random weights, as Hugging Face's transformers write and compute them.

    python3 -m pip install torch==2.13.0 transformers==5.23.0 safetensors
    python3 tests/golden/hugging_face.py                      # writes the folders hugging_face/* beside this file
    python3 tests/golden/hugging_face.py build/orrery [FOLDER...]

Each folder holds config.json, the tensors, and logits.safetensors: tokens (B, T) and the logits (B, T, V), or
pixel_values (B, channels, height, width) and the logits (B, classes), that transformers give in float32 on a CPU.
Weights are large and no bias is zero, so that no part of a model is near its linear range.  The models: gpt2, whose
head is the embedding; gpt2_own_head with another activation, width between and epsilon; llama with grouped heads, a
head of its own and two files; llama_tied with biases, heads of another size than width / heads and another base of the
angles; vit, whose classes have names.

With the program's path, each of these models, made anew with another seed, and each FOLDER goes through `orrery import`
(the logits must agree within 1e-5, or that of the largest logit) and `orrery export`, whose folder transformers must
read to the same logits.  Then tokenizers that orrery learns are exported, and AutoTokenizer must make the same tokens
of some texts.  The last line reads "N passed, N failed".
"""
import array
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import save_file
from transformers import (AutoConfig, AutoModelForCausalLM, AutoModelForImageClassification, AutoTokenizer, GPT2Config,
                          GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, ViTConfig, ViTForImageClassification)
from transformers.utils.logging import disable_progress_bar

disable_progress_bar()
TOLERANCE = 1e-5
NONE = dict(bos_token_id=None, eos_token_id=None)
GPT2 = dict(vocab_size=61, n_positions=24, n_embd=16, n_layer=2, n_head=2, **NONE)
LLAMA = dict(vocab_size=61, max_position_embeddings=24, hidden_size=16, intermediate_size=40, num_hidden_layers=2,
             num_attention_heads=4, **NONE)
MODELS = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(**GPT2)),
    "gpt2_own_head": (GPT2LMHeadModel, GPT2Config(**GPT2, n_inner=24, activation_function="relu",
                                                  layer_norm_epsilon=1e-3, tie_word_embeddings=False)),
    "llama": (LlamaForCausalLM, LlamaConfig(**LLAMA, num_key_value_heads=2)),
    "llama_tied": (LlamaForCausalLM, LlamaConfig(**LLAMA, num_key_value_heads=1, head_dim=6, attention_bias=True,
                                                 mlp_bias=True, tie_word_embeddings=True, hidden_act="gelu",
                                                 rope_parameters={"rope_type": "default", "rope_theta": 500.0})),
    "vit": (ViTForImageClassification, ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                                 intermediate_size=24, image_size=12, patch_size=4,
                                                 id2label={0: "a cat", 1: "a dog", 2: "neither"})),
}


def make(name, folder, seed):
    kind, config = MODELS[name]
    torch.manual_seed(seed)
    model = kind(config).eval()
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            is_gain = parameter.dim() == 1 and path.endswith("weight")
            parameter.copy_(is_gain + 0.3 * torch.randn_like(parameter))
    # Of llama two files with an index; one file has them all otherwise.
    model.save_pretrained(folder, max_shard_size="12KB" if name == "llama" else "1GB")
    (folder / "generation_config.json").unlink(missing_ok=True)
    return model


def read(folder):
    reads_images = AutoConfig.from_pretrained(folder).model_type == "vit"
    kind = AutoModelForImageClassification if reads_images else AutoModelForCausalLM
    return kind.from_pretrained(folder, dtype=torch.float32).eval()


def logits_of(model, asked):
    with torch.no_grad():
        return model(asked).logits.float()


def write_logits(model, path):
    config, chance = model.config, torch.Generator().manual_seed(5)
    if config.model_type == "vit":
        name, asked = "pixel_values", torch.randn(2, config.num_channels, config.image_size, config.image_size,
                                                  generator=chance)
    else:
        length = min(config.max_position_embeddings, 24)
        name, asked = "tokens", torch.randint(config.vocab_size, (2, length), generator=chance)
    save_file({name: asked, "logits": logits_of(model, asked).contiguous()}, path)
    return asked


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


def check(orrery, source, scratch):
    """The largest differences of the import's logits and of those that transformers give with the export, and what is
    allowed."""
    model = read(source)
    logits = scratch / "logits.safetensors"
    asked = write_logits(model, logits)
    told = run(orrery, "import", source, f"--out={scratch / 'run'}", f"--reference_logits={logits}")
    there = float(re.search(r"largest difference of the logits: (\S+)", told)[1])
    run(orrery, "export", scratch / "run", f"--out={scratch / 'exported'}")
    again = read(scratch / "exported")
    wanted = logits_of(model, asked)
    back = (logits_of(again, asked) - wanted).abs().max().item()
    return there, back, TOLERANCE * max(1.0, wanted.abs().max().item())


TOKENIZERS = ["byte", "byte_pair(vocabulary=400)", "sentence_piece(vocabulary=400)",
              "sentence_piece(vocabulary=400, byte_fallback=yes, kind=bpe)",
              "sentence_piece(vocabulary=400, kind=unigram)",
              "sentence_piece(vocabulary=700, kind=unigram, byte_fallback=yes)"]
TEXTS = ["First Citizen:", " begins with a space", "ends with one ", "two  spaces,   three", "a\nline\n\nand one",
         "tabs\tand more", "\n", "before all, hear me", "d\u00e9j\u00e0 vu", "\u65e5\u672c\u8a9e", "\u2581 is not a space",
         "unknown \U0001f642 here", "\ufb01 \u00bd \u2460", "1984 12 7", "don't we'll I've", "   ", "A", "\u00a0x", "x\u3000y"]


def check_tokenizer(orrery, name, text, scratch):
    """The texts of which transformers make other tokens than orrery."""
    run(orrery, "train", f"--data={text}", f"--tokenizer={name}", "--model=gpt", "--layers=1", "--heads=2", "--width=8",
        "--context=8", "--batch_size=2", "--steps=60", "--learning_rate=0.01", "--validation_fraction=0.01",
        f"--out={scratch / 'run'}")
    run(orrery, "export", scratch / "run", f"--out={scratch / 'exported'}")
    theirs = AutoTokenizer.from_pretrained(scratch / "exported")
    others = []
    for number, one in enumerate(TEXTS):
        if not theirs.encode(one):  # prepare refuses a text without tokens
            continue
        source, prepared = scratch / f"{number}.txt", scratch / f"tokens{number}"
        source.write_bytes(one.encode())
        run(orrery, "prepare", f"--input={source}", f"--tokenizer={scratch / 'exported'}", f"--out={prepared}",
            "--validation_fraction=0")
        ours = array.array("H", (prepared / "train.bin").read_bytes()).tolist()
        if theirs.encode(one) != ours:
            others.append(one)
    return others


def main():
    here = pathlib.Path(__file__).parent / "hugging_face"
    if len(sys.argv) == 1:
        for seed, name in enumerate(MODELS, 1):
            (here / name).mkdir(parents=True, exist_ok=True)
            write_logits(make(name, here / name, seed), here / name / "logits.safetensors")
        return
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        folders = [pathlib.Path(path) for path in sys.argv[2:]]
        for seed, name in enumerate(MODELS, 101):
            folders.append(pathlib.Path(scratch) / name)
            make(name, folders[-1], seed)
        for number, folder in enumerate(folders):
            own = pathlib.Path(scratch) / str(number)
            own.mkdir()
            there, back, allowed = check(sys.argv[1], folder, own)
            failures += not (there <= allowed and back <= allowed)
            print(json.dumps({"folder": folder.name, "imported": there, "exported": back, "allowed": allowed}))
        text = here.parents[2] / "examples/data/tinyshakespeare.txt"
        tokenizers = TOKENIZERS + [here.parents[1] / "cases/llama_bos"]  # which keeps spaces in a row
        for number, name in enumerate(tokenizers):
            own = pathlib.Path(scratch) / f"tokenizer{number}"
            own.mkdir()
            others = check_tokenizer(sys.argv[1], name, text, own)
            failures += bool(others)
            print(json.dumps({"tokenizer": str(name), "other tokens of": others}))
    print(f"{len(folders) + len(tokenizers) - failures} passed, {failures} failed")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
