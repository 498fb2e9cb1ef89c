"""Writes engine/API.md from the headers' comments.  python3 tests/api.py [--check]

A row has a function or a module, its shapes and its meaning, as the header states them: in the comment after the
declaration, or before it (also of the next declarations without a blank line between).  The first part of a comment
that ends the shapes "(...) -> (...)" is the second column; a comment is cut after the last sentence with a shape.
With --check nothing is written: the page must be current, and every row must have a comment.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "engine/API.md"
SECTIONS = [
    ("Tensors", ["engine/tensor/tensor.h"]),
    ("Operations", ["engine/ops/ops.h"]),
    ("Differentiation", ["engine/autograd/autograd.h", "engine/autograd/recompute.h"]),
    ("Layers", ["nn/layers/linear.h", "nn/layers/embedding.h", "nn/layers/dropout.h"]),
    ("Images", ["nn/vision/convolution.h", "nn/vision/patches.h", "nn/vision/pooling.h"]),
    ("Activations", ["nn/formulas/activation.h"]),
    ("Attention", ["nn/attentions/base/attention.h", "nn/attentions/base/fused.h", "nn/attentions/base/slots.h"]),
    ("Feed-forward layers", ["nn/feed_forwards/base/feed_forward.h", "nn/feed_forwards/base/conversions.h"]),
    ("Normalizations", ["nn/normalizations/base/normalization.h"]),
    ("Positions", ["nn/positions/base/position.h"]),
    ("Losses", ["nn/losses/base/loss.h"]),
    ("Optimizers and schedules", ["nn/optimizers/base/optimizer.h", "nn/schedules/base/schedule.h"]),
]
METHODS_OF = {"Tensor", "Activation", "Position"}  # classes whose methods are listed
MODULES_IN = {"Layers", "Images"}  # sections whose classes are listed by their constructors
HEAD = """# Operations and layers, in one line each

This page is for those who write an operation, a layer or a model in C++, and know what they search for. It is made from
the comments of the headers by `python3 tests/api.py`; a test checks that it is current. Shapes are written as in NumPy:
(..., C) has any leading axes. B: sequences or images, T: tokens, C: channels, H: heads, D: channels of a head, Hk and
Dv: heads of keys and channels of values, V: vocabulary or classes, N: outputs or slots. Operations are in the namespace
`orrery`, everything of nn in `orrery::nn`. Registered components with their formulas are in
[nn/CATALOGUE.md](../nn/CATALOGUE.md).
"""


def split_comment(line):
    """Splits a line of code from the comment at its end."""
    at = line.find("//")
    return (line, "") if at < 0 else (line[:at], line[at + 2:].strip())


def declarations(path):
    """Yields (class, declaration, comment) of every declaration at the level of a namespace or a class."""
    scopes, statement, comment, trailing, private = [], "", [], "", [False]
    is_used = in_macro = False  # the comment belongs to a declaration; the line continues a preprocessor line
    for line in (ROOT / path).read_text().splitlines():
        stripped = line.strip()
        if in_macro or stripped.startswith("#"):
            in_macro, comment = stripped.endswith("\\"), []
            continue
        if stripped.startswith("//") and not statement:
            if is_used or stripped.startswith("// ----"):
                comment, is_used = [], False
            if not stripped.startswith("// ----"):
                comment.append(stripped[2:].strip())
            continue
        if not stripped:
            comment = []
            continue
        if re.fullmatch(r"(public|private|protected):", stripped):
            private[-1], comment = stripped != "public:", []
            continue
        code, end = split_comment(line)
        trailing = end or trailing
        statement = (statement + " " + code.strip()).strip()
        opens = re.fullmatch(r"(?:template <.*> )?(namespace|class|struct|enum class)\s*([\w:]*)[^;(]*\{", statement)
        if opens:
            scopes.append((opens[1], opens[2]))
            private.append(opens[1] == "class")
            statement, comment, trailing = "", [], ""
            continue
        if re.fullmatch(r"\};?", statement):
            if scopes:
                scopes.pop()
                private.pop()
            statement, comment, trailing = "", [], ""
            continue
        if statement.count("(") != statement.count(")") or statement.count("{") != statement.count("}"):
            continue
        if not statement.endswith((";", "}")):
            continue
        kinds = [kind for kind, _ in scopes]
        if ("namespace", "detail") not in scopes and not private[-1] and kinds.count("struct") == 0:
            name = next((n for kind, n in reversed(scopes) if kind == "class"), "")
            yield name, statement, trailing or " ".join(c for c in comment if c)
        is_used = True
        statement, trailing = "", ""


def split_arguments(text):
    """Splits at the commas that are not in brackets."""
    parts, depth, part = [], 0, ""
    for c in text:
        depth += (c in "(<{[") - (c in ")>}]")
        if c == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += c
    return [p.strip() for p in parts + [part] if p.strip()]


def argument_name(argument):
    argument = re.sub(r"/\*(\w+)\*/", r"\1", argument)
    left, equals, default = argument.partition(" = ")
    match = re.search(r"(\w+)$", left)
    is_named = match and re.search(r"[\s&*>]" + match[1] + "$", left)
    return (match[1] if is_named else re.sub(r"ForwardPass&|\W", "pass", left).lower()) + (" = " + default if equals else "")


def row_of(owner, statement):
    """Returns a signature, or nothing for what is not an operation."""
    match = re.match(r"((?:static |virtual |inline |explicit )*)([\w:<>,&* ]*?)\s*\b(operator\(\)|\w+)\(", statement)
    if not match or statement.startswith(("friend", "using", "return", "template", "struct")):
        return None
    kind, result, name = match[1], match[2].strip(), match[3]
    end, depth = match.end(), 1
    while depth:
        depth += (statement[end] == "(") - (statement[end] == ")")
        end += 1
    arguments = statement[match.end():end - 1]
    names = ", ".join(argument_name(a) for a in split_arguments(arguments))
    if owner and owner not in METHODS_OF:
        if name == owner and not result:
            return f"{owner}({names})"
        return None
    gives = re.search(r"\b(Tensor|AttentionOutput|unique_ptr)\b", result) or name in ("backward", "add_rows_in_place")
    if not gives or name.startswith(("impl", "raw")):
        return None
    if owner == "Activation":
        return f"f({names})" if name == "operator()" else f"f.{name}({names})"
    if owner == "Position":
        return f"position.{name}({names})" if name != "forward" else None
    if owner == "Tensor":
        return f"Tensor::{name}({names})" if "static" in kind else f"x.{name}({names})"
    return f"{name}({names})"


def forward_of(path, owner):
    """Returns the comment of a module's forward, or the operation that it calls."""
    inside = False
    for name, statement, comment in declarations(path):
        inside = name == owner
        if inside and re.search(r"\bforward\(", statement):
            called = re.search(r"return (\w+)\(", statement)
            return comment or (f"the module of `{called[1]}`" if called else "")
    return ""


def about(path):
    """Returns the first sentence of a header."""
    lines = []
    for line in (ROOT / path).read_text().splitlines():
        if not line.startswith("// "):
            break
        lines.append(line[3:])
    return re.split(r"(?<=\.) (?=[A-Z])", " ".join(lines))[0]


def cut(comment):
    """Cuts a comment after its last sentence with a shape, or after the first sentence."""
    sentences = re.split(r"(?<=\.) (?=[A-Z])", comment)
    shaped = [i for i, s in enumerate(sentences) if re.search(r"\((\.\.\.|[A-Z][a-z]?\b|\w+, )", s)]
    return " ".join(sentences[: (shaped[-1] if shaped else 0) + 1]).rstrip(".")


def page():
    text, lacking = HEAD, []
    for title, paths in SECTIONS:
        text += f"\n## {title}\n"
        for path in paths:
            rows, seen = [], set()
            for owner, statement, comment in declarations(path):
                row = row_of(owner, statement)
                is_module = owner and owner not in METHODS_OF
                if row is None or (is_module and title not in MODULES_IN):
                    continue
                key = re.sub(r"\(.*", "", row)
                if is_module:
                    comment = forward_of(path, owner)
                elif key in seen and not comment:
                    continue  # another form of the arguments
                seen.add(key)
                if not comment:
                    lacking.append(f"{path}: no comment for {row}")
                cells = [f"`{row}`", cut(comment).replace("|", "\\|")]
                if cells not in rows:
                    rows.append(cells)
            if rows:
                text += f"\n`{path}`: {about(path)}\n\n| call | shapes and meaning |\n| --- | --- |\n"
                text += "".join(f"| {call} | {meaning} |\n" for call, meaning in rows)
    return text, lacking


def main():
    text, lacking = page()
    for message in lacking:
        print(message)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text)
        return bool(lacking)
    if PAGE.read_text() == text and not lacking:
        return False
    print("engine/API.md is not current: run python3 tests/api.py")
    return True


if __name__ == "__main__":
    sys.exit(main())
