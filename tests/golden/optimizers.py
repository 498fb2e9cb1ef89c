"""Golden optimizers: five steps on given gradients.  A case has p0, p1, ... (the initial parameters), g0, g1, ... (5,
shape: their gradients) and steps0, steps1, ... (5, shape: the parameters after each step); y is steps0.  No
gradients of these.
    adagrad    1905.07799's: n = norm(g) of one tensor; rate c / (n + 1e-10) in place of the rate if n > c; sum +=
               g^2 with the unclipped g; p -= rate g / (sqrt(sum) + 1e-10); clip=0 means no clip
    lion       2302.06675: u = sign(b1 m + (1 - b1) g); p -= rate (u + decay p); m = b2 m + (1 - b2) g; m starts at 0
    muon       Jordan 2024: m = 0.95 m + g, u = g + 0.95 m; u / (norm(u) + 1e-7), transposed while rows > columns;
               five times X = a X + (b A + c A A) X, A = X X^T, (a, b, c) = (3.4445, -4.7750, 2.0315); p -= rate
               max(1, rows / columns)^0.5 X in float64 throughout
    adamw      torch.optim.AdamW
"""
import torch

from cases import Cases, seed

cases = Cases("optimizer", "optimizers.safetensors")
STEPS = 5


def adagrad(rate, clip):

    def start(p):
        total = torch.zeros_like(p)

        def step(g):
            norm = g.pow(2).sum().sqrt()
            factor = rate * clip / (norm + 1e-10) if clip > 0 and norm > clip else rate
            total.add_(g * g)
            p.sub_(factor * g / (total.sqrt() + 1e-10))

        return step

    return start


def lion(rate, b1, b2, decay):

    def start(p):
        moment = torch.zeros_like(p)

        def step(g):
            update = torch.sign(b1 * moment + (1 - b1) * g)
            p.sub_(rate * (update + decay * p))
            moment.mul_(b2).add_((1 - b2) * g)

        return step

    return start


def orthogonalized(u):
    x = u.T if u.shape[0] > u.shape[1] else u
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.T if u.shape[0] > u.shape[1] else x


def muon(rate, momentum):

    def start(p):
        moment = torch.zeros_like(p)

        def step(g):
            moment.mul_(momentum).add_(g)
            scale = max(1, p.shape[0] / p.shape[1]) ** 0.5
            p.sub_(rate * scale * orthogonalized(g + momentum * moment))

        return step

    return start


def adamw(rate, b1, b2, epsilon, decay):

    def start(p):
        optimizer = torch.optim.AdamW([p], lr=rate, betas=(b1, b2), eps=epsilon, weight_decay=decay, foreach=False)

        def step(g):
            p.grad = g
            optimizer.step()

        return step

    return start


def case(name, spec, start, shapes, sizes, **options):
    """sizes: how large each tensor's gradients are, so that some are clipped and some are not."""
    seed(name)
    tensors = {}
    for i, (shape, size) in enumerate(zip(shapes, sizes)):
        p, g, steps = torch.randn(shape), size * torch.randn(STEPS, *shape), []
        tensors[f"p{i}"], tensors[f"g{i}"] = p.clone(), g
        step = start(p)
        for each in g:
            step(each)
            steps.append(p.clone())
        tensors[f"steps{i}"] = torch.stack(steps)
    outputs = {key: x for key, x in tensors.items() if key.startswith("steps")}
    constants = {key: x for key, x in tensors.items() if not key.startswith("steps")}
    cases.add(name, spec, lambda **kept: (tensors["steps0"], outputs), {}, constants=constants,
              tensors_count=len(shapes), **options)


def make():
    shapes, sizes = [(2, 3), (4, ), (3, 5)], [0.5, 0.004, 0.02]
    for name, clip in (("adagrad_clipped", 0.03), ("adagrad", 0)):
        case(name, f"adagrad(rate=0.07, clip={clip})", adagrad(0.07, clip), shapes, sizes, rate=0.07, clip=clip)
    for name, decay in (("lion", 0), ("lion_decayed", 0.1)):
        case(name, f"lion(rate=0.01, beta1=0.9, beta2=0.99, decay={decay})",
             lion(0.01, 0.9, 0.99, decay), shapes, sizes, rate=0.01, beta1=0.9, beta2=0.99, decay=decay)
    case("muon", "muon(rate=0.02, momentum=0.95)", muon(0.02, 0.95), [(6, 3), (3, 6), (4, 4)], [1, 0.2, 3], rate=0.02,
         momentum=0.95, epsilon=1e-7)
    case("adamw", "adamw(rate=0.01, beta1=0.9, beta2=0.95, epsilon=1e-8, decay=0.1)", adamw(0.01, 0.9, 0.95, 1e-8, 0.1),
         shapes, sizes, rate=0.01, beta1=0.9, beta2=0.95, epsilon=1e-8, decay=0.1)
    return cases
