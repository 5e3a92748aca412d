"""Prints the figures of lpips 0.1.4 that `lpips.rs` is held against: its own network with weights made up as there."""

import lpips
import torch

SHAPES = {
    "net.slice1.0": (64, 3, 11), "net.slice2.3": (192, 64, 5), "net.slice3.6": (384, 192, 3),
    "net.slice4.8": (256, 384, 3), "net.slice5.10": (256, 256, 3),
}


def numbers(tag, count, bound):
    index = torch.arange(count, dtype=torch.float64)
    return (((index * 7919 + 31 * tag) % 2003) / 1001.0 - 1.0) * bound


def image(height, width, factor):
    c, y, x = torch.meshgrid(torch.arange(3), torch.arange(height), torch.arange(width), indexing="ij")
    return ((7 * x + 13 * y + 29 * c + factor * x * y) % 64).float() / 63.0


network = lpips.LPIPS(net="alex", version="0.1", pretrained=False, pnet_rand=True, verbose=False)
weights = {}
for layer, (name, (output, channels, side)) in enumerate(SHAPES.items()):
    fan = channels * side * side
    weights[f"{name}.weight"] = numbers(layer, output * fan, (6 / fan) ** 0.5).view(output, channels, side, side)
    weights[f"{name}.bias"] = numbers(10 + layer, output, 0.1)
    weights[f"lin{layer}.model.1.weight"] = numbers(20 + layer, output, 1.0).abs().view(1, output, 1, 1)
missing, unexpected = network.load_state_dict({name: value.float() for name, value in weights.items()}, strict=False)
assert not unexpected and all(name.startswith(("lins.", "scaling")) for name in missing), (missing, unexpected)
for height, width in [(31, 31), (40, 64), (75, 50)]:
    a, far = image(height, width, 1), image(height, width, 3)
    near = a * 0.9 + far * 0.1
    with torch.no_grad():
        print(height, width, *(network(x[None], a[None], normalize=True).item() for x in (near, far)))
