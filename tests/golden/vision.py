"""Golden vision layers: x (B, channels, height, width).  Choices, PyTorch's:
    convolution       cross-correlation; weight (out, in, kernel height, kernel width), zero padding on both sides
    maximum pooling   padding is minus infinity; of equal values the first one in reading order gets the gradient
    average pooling   padding counts as zeros in sum and divisor (counts_padding), or the divisor is the number of
                      real pixels
    patch embedding   patches in reading order, y (B, patches, width) = patch weight^T + bias; weight (width,
                      channels P P), a patch laid out channel by channel, row by row
"""
import torch
import torch.nn.functional as F

from cases import Cases, seed

cases = Cases("vision", "vision.safetensors")


def case(name, spec, function, x, parameters=None, **options):
    seed(name)
    image, drawn = torch.randn(x), {key: torch.randn(shape) for key, shape in (parameters or {}).items()}
    cases.add(name, spec, function, {"x": image}, drawn, **options)


def patches(P):

    def run(x, weight, bias):
        B, C, height, width = x.shape
        cut = x.reshape(B, C, height // P, P, width // P, P).permute(0, 2, 4, 1, 3, 5)
        return cut.reshape(B, -1, C * P * P) @ weight.T + bias

    return run


def make():
    for kernel, stride, padding in (((3, 3), 1, 0), ((3, 3), 1, 1), ((3, 3), 2, 1), ((2, 3), 2, 0), ((1, 1), 1, 0)):
        name = f"convolution_{kernel[0]}x{kernel[1]}_stride_{stride}_padding_{padding}"
        case(name, "convolution", lambda x, weight, bias: F.conv2d(x, weight, bias, stride, padding), (2, 3, 5, 7),
             {"weight": (4, 3, *kernel), "bias": (4, )}, kernel=kernel, stride=stride, padding=padding)
    case("convolution_without_bias", "convolution", lambda x, weight: F.conv2d(x, weight, None, 1, 1), (2, 3, 5, 7),
         {"weight": (4, 3, 3, 3)}, kernel=(3, 3), stride=1, padding=1)
    for kernel, stride, padding in ((2, 2, 0), (3, 2, 1), (3, 1, 1)):
        settings = dict(kernel=kernel, stride=stride, padding=padding)
        case(f"maximum_pooling_{kernel}_{stride}_{padding}", "maximum_pooling",
             lambda x: F.max_pool2d(x, kernel, stride, padding), (2, 3, 5, 7), **settings)
        for counts in ((True, False) if padding else (True, )):
            case(f"average_pooling_{kernel}_{stride}_{padding}" + ("" if counts else "_real_pixels"), "average_pooling",
                 lambda x: F.avg_pool2d(x, kernel, stride, padding, count_include_pad=counts), (2, 3, 5, 7),
                 counts_padding=counts, **settings)
    case("average_pooling_global", "average_pooling", lambda x: x.mean((2, 3)), (2, 3, 5, 7), kernel="all")
    case("patch_embedding", "patches", patches(2), (2, 3, 4, 6), {"weight": (5, 12), "bias": (5, )}, patch=2)
    # A patch embedding is a convolution whose stride is its kernel.
    x, weight = torch.randn(2, 3, 4, 6), torch.randn(5, 3, 2, 2)
    other = F.conv2d(x, weight, stride=2).flatten(2).transpose(1, 2)
    assert torch.allclose(patches(2)(x, weight.reshape(5, 12), torch.zeros(5)), other, atol=1e-12)
    return cases
