"""What the sandbox's process runs: it gives up its rights, says that it has, and only then runs the program.

Its compiled code is handed to a bare interpreter (`bare`), together with that of `rights`, so it imports nothing else
of this package, and little of others: every run of every program pays for it. What the program could read in this
process is no secret: expected outputs never get here.
"""

import builtins
import os
import sys
import threading
import types

from balanced_aggregation.rewards.sandboxing.rights import isolate, limit

MEMORY_EXIT = 71


def main(settings):
    """Give up all rights in the main thread, so that every later thread lacks them; run the program in another."""
    status = settings["status"]
    exit_codes = []

    def run():
        threading.stack_size(0)
        os.write(status, b"ready")
        os.close(status)
        exit_codes.append(_run_program(settings))

    try:
        limit(settings)
        isolate(settings)
        threading.stack_size(settings["stack_bytes"])
        thread = threading.Thread(target=run)
        thread.start()
    except BaseException as error:
        os.write(status, f"{type(error).__name__}: {error}".encode())
        os._exit(1)
    thread.join()
    sys.exit(exit_codes[0])


def _run_program(settings):
    """Run the program; return its exit code."""
    try:
        _execute(settings)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    except MemoryError:
        return MEMORY_EXIT
    except BaseException:
        sys.__excepthook__(*sys.exc_info())
        return 1
    return 0


def _execute(settings):
    function = settings["function"]
    if function is not None:
        # What the program prints is not its answer: that goes to a descriptor of its own.
        import json

        arguments = [json.loads(line) for line in sys.stdin.read().splitlines() if line.strip()]
        answer = os.dup(1)
        os.dup2(2, 1)
    module = types.ModuleType("__main__" if function is None else "solution")
    module.__builtins__ = builtins
    sys.modules[module.__name__] = module
    sys.argv = ["program"]
    sys.meta_path.append(_PackageFinder(settings["packages"]))
    sys.setrecursionlimit(settings["recursion_limit"])
    code = compile(settings["source"], "<program>", "exec", dont_inherit=True)
    _add_usual_names(code, module.__dict__, settings["usual_names"])
    exec(code, module.__dict__)
    if function is not None:
        holder = module.Solution() if hasattr(module, "Solution") else module
        text = json.dumps(getattr(holder, function)(*arguments), allow_nan=False)
        with os.fdopen(answer, "w", encoding="utf-8") as file:
            file.write(text)


class _PackageFinder:
    """Finds the allowed packages, so that the folders in which they lie need not be listed."""

    def __init__(self, folders):
        self.folders = folders

    def find_spec(self, name, path=None, target=None):
        """As `importlib.abc.MetaPathFinder` describes."""
        if name not in self.folders:
            return None
        from importlib.util import spec_from_file_location

        folder = self.folders[name]
        return spec_from_file_location(name, f"{folder}/__init__.py", submodule_search_locations=[folder])


def _add_usual_names(code, namespace, usual_names):
    """Import those of the usual names that the program uses; all of them would take longer than most programs."""
    pending, used = [code], set()
    while pending:
        block = pending.pop()
        used.update(block.co_names)
        pending += [constant for constant in block.co_consts if isinstance(constant, types.CodeType)]
    for name in sorted(used & usual_names.keys()):
        if not hasattr(builtins, name):
            module, attribute = usual_names[name]
            imported = __import__(module)
            namespace[name] = getattr(imported, attribute) if attribute else imported
