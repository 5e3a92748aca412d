"""Puts a reserve of host memory under the PyTorch of a command, once the command has imported it.

The package lowtide does it, when the process begins to use CUDA; here is only what is said where a Python has no such package, and then
nothing is trained.
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def begin():
    try:
        from lowtide import _reserve_inside
    except ImportError as error:
        text = "error: --reserve needs the package lowtide, which this Python has not (%s)\nhint: %s -m pip install --upgrade lowtide\n"
        sys.stderr.write(text % (error, sys.executable))
        sys.exit(2)
    with open(os.path.join(HERE, "reserve.json"), encoding="utf-8") as file:
        _reserve_inside.begin(json.load(file))


begin()
