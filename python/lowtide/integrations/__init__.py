"""The guard for those who own no loop."""

from .._versions import need_torch

need_torch("lowtide.integrations")
