"""Takes the setting of PyTorch's allocator that `lowtide run` made away again from a PyTorch that does not know it.

`expandable_segments` came with PyTorch 2.1. An older one refuses what it does not know when it first uses a card; it reads the
variable then, and not when it is imported.
"""
import os
import sys

NAME, VALUE = "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"


def is_older(version):
    first, second = version.split(".")[:2]
    return (int(first), int(second)) < (2, 1)


if os.environ.get(NAME) == VALUE and is_older(sys.modules["torch"].__version__):
    del os.environ[NAME]
