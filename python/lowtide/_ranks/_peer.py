"""What a rank raises because of another one."""

from __future__ import annotations

import torch


class PeerFailed(torch.OutOfMemoryError):
    """Another rank ran out of memory. This one leaves the attempt too, so that nobody waits for anybody."""

    def __init__(self) -> None:
        super().__init__("another rank ran out of memory")
