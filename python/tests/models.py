"""Small models of the kinds that people train, for the CPU."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn
from torch.nn import functional


@dataclasses.dataclass
class Pair:
    x: torch.Tensor
    y: torch.Tensor


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        parts = self.qkv(self.first(x)).view(rows, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.drop(self.out(attended.transpose(1, 2).reshape(rows, length, width)))
        return x + self.drop(self.down(functional.gelu(self.up(self.second(x)))))


class Gpt(nn.Module):
    """A decoder of two blocks, with dropout."""

    def __init__(self, vocabulary: int = 64, length: int = 16, width: int = 32, depth: int = 2, heads: int = 2) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Cnn(nn.Module):
    """Convolutions with BatchNorm and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, 10),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def tokens(samples: int, number: int, vocabulary: int = 64, length: int = 16) -> Pair:
    """The batch of a number; a part of its targets is left out of the loss."""
    generator = torch.Generator().manual_seed(1000 + number)
    x = torch.randint(vocabulary, (samples, length), generator=generator)
    y = torch.randint(vocabulary, (samples, length), generator=generator)
    y[torch.rand(y.shape, generator=generator) < 0.2] = -100
    return Pair(x, y)


def pictures(samples: int, number: int) -> Pair:
    generator = torch.Generator().manual_seed(2000 + number)
    x = torch.randn(samples, 3, 12, 12, generator=generator)
    return Pair(x, torch.randint(10, (samples,), generator=generator))


def loss_of(model: nn.Module, part: Pair) -> torch.Tensor:
    logits = model(part.x)
    return functional.cross_entropy(logits.flatten(0, -2), part.y.flatten())


def counted(part: Pair) -> torch.Tensor:
    return (part.y != -100).sum()
