"""Puts the guard of the package lowtide into a library's Trainer, once the command has imported it.

The package does it; here is only what is said where a Python has no such package, and then nothing is trained.
"""
import os
import sys

MODULE = os.path.basename(os.path.dirname(os.path.abspath(__file__)))


def begin():
    try:
        from lowtide.integrations import _inside
    except ImportError as error:
        text = "error: --inside needs the package lowtide, which this Python has not (%s)\nhint: %s -m pip install --upgrade lowtide\n"
        sys.stderr.write(text % (error, sys.executable))
        sys.exit(2)
    _inside.put_into(MODULE, sys.modules[MODULE])


begin()
