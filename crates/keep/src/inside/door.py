"""Lets parts of `lowtide run` into a Python of the command.

`lowtide run` puts this file's folder first on PYTHONPATH, so that every Python of the command reads it at its start as its
`sitecustomize`. Parts in the folder `start` are run at once. Those in `after/MODULE` are run when the command itself has imported
that module; until then they cost a look at a name for each module that is imported. A part that fails is left out. Then the
sitecustomize that Python would have read is read, if there is one, and for the command there was never another.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def parts_in(folder):
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names if name.endswith(".py")]


def run(path):
    """Runs a part as a module of its own, so that Python keeps it compiled for the next process."""
    try:
        from importlib.machinery import ModuleSpec, SourceFileLoader

        name = "_lowtide_" + os.path.basename(path)[:-3]
        loader = SourceFileLoader(name, path)
        spec = ModuleSpec(name, loader, origin=path)
        spec.has_location = True
        module = type(sys)(name)
        module.__spec__, module.__loader__, module.__file__ = spec, loader, path
        sys.modules[name] = module
        loader.exec_module(module)
    except Exception:
        pass


class Wait:
    """The first of the finders, until every module that parts wait for is there."""

    def __init__(self, parts):
        self.parts = parts

    def find_spec(self, name, path=None, target=None):
        if name not in self.parts:
            return None
        spec = self.spec_of_others(name, path, target)
        try:
            loader = spec.loader
            load = loader.exec_module

            def exec_module(module):
                # An instance has it only once, and whoever looks at the loader later sees nothing of us.
                loader.__dict__.pop("exec_module", None)
                load(module)
                self.arrived(name)

            loader.exec_module = exec_module
        except Exception:
            pass
        return spec

    def spec_of_others(self, name, path, target):
        # Those before it were asked already: in a run within a run one of them waits too, and would ask this one again.
        finders = list(sys.meta_path)
        behind = finders[finders.index(self) + 1 :] if self in finders else []
        for finder in behind:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                return spec
        return None

    def arrived(self, name):
        parts = self.parts.pop(name, [])
        if not self.parts and self in sys.meta_path:
            sys.meta_path.remove(self)
        for path in parts:
            run(path)


def open_door():
    seen = os.path.join(HERE, "seen")
    if not os.path.exists(seen):
        with open(seen, "ab"):
            pass
    for path in parts_in(os.path.join(HERE, "start")):
        run(path)
    after = os.path.join(HERE, "after")
    modules = os.listdir(after) if os.path.isdir(after) else []
    waiting = {name: parts_in(os.path.join(after, name)) for name in modules}
    for name in [name for name in waiting if name in sys.modules]:
        for path in waiting.pop(name):
            run(path)
    if waiting:
        sys.meta_path.insert(0, Wait(waiting))


sys.path[:] = [path for path in sys.path if os.path.abspath(path) != HERE]
if sys.version_info >= (3, 6):
    try:
        open_door()
    except Exception:
        pass
# The one that Python would have read. Where there is none, Python itself says so, and takes it as it always does.
sys.modules.pop("sitecustomize", None)
import sitecustomize  # noqa: E402,F401
