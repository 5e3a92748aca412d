"""Errors on purpose, for examples: the first calls of a function run out of memory."""

import functools
import os

import torch


def sometimes(function):
    left = [int(os.environ.get("LOWTIDE_EXAMPLE_ERRORS", "0"))]

    @functools.wraps(function)
    def failing(*args, **kwargs):
        result = function(*args, **kwargs)
        if left[0]:
            left[0] -= 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. (on purpose)")
        return result

    return failing
