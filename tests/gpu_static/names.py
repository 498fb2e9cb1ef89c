"""Names of kernels, for all scripts here."""
import re


def shortened(name):
    """Returns the name without namespaces, result and arguments."""
    name = re.sub(r"_GLOBAL__N__\w+::|\(anonymous namespace\)::|<unnamed>::", "", name)
    depth = 0
    for n, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            name = name[:n]
            break
    return re.sub(r"\b(orrery|cuda|nn|detail)::|^void |(?<=>) (?=>)", "", name)
