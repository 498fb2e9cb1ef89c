"""Names of kernels, for all that reads them."""
import re


def shortened(name):
    """Without namespaces, result and arguments."""
    name = re.sub(r"_GLOBAL__N__\w+::|\(anonymous namespace\)::|<unnamed>::", "", name)
    depth = 0
    for n, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            name = name[:n]
            break
    return re.sub(r"\b(orrery|cuda|nn|detail)::|^void |(?<=>) (?=>)", "", name)
