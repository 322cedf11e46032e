"""Which module imports which, read from the source without running it."""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path


def modules(root: Path) -> dict[str, Path]:
    """Name -> file of every module of the project: the package, the pages and app.py."""
    files = [*root.glob("kvviz/**/*.py"), *root.glob("pages/**/*.py"), *root.glob("app.py")]
    return {_name(file.relative_to(root)): file for file in sorted(files)}


def _name(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str, known: Iterable[str]) -> set[str]:
    """Modules that `source` imports at any depth: our own by full name, others by their first part.

    `from kvviz import figures` names the module kvviz.figures where one is `known`, else kvviz itself.
    A relative import is given with its dots, which no row allows.
    """
    written = _written(ast.parse(source), set(known))
    found = {name if name.startswith(("kvviz.", ".")) else name.split(".")[0] for name in written}
    return found - sys.stdlib_module_names


def _written(tree: ast.AST, known: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            submodules = [f"{base}.{alias.name}" for alias in node.names]
            yield from (name if name in known else base for name in submodules)


def row(module: str, table: Mapping[str, set[str]]) -> str | None:
    """The row of `table` that rules `module`: its own, or that of the nearest package around it.

    The row of the package kvviz itself is for its __init__ alone: a new sub-package needs its own.
    """
    parts = module.split(".")
    around = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((name for name in around if name in table and (name != "kvviz" or module == "kvviz")), None)


def violations(sources: Mapping[str, str], table: Mapping[str, set[str]]) -> list[str]:
    """One line for every module without a row and for every import that its row does not allow."""
    lines = []
    for module, source in sources.items():
        name = row(module, table)
        if name is None:
            lines.append(f"{module} has no row in ALLOWED")
            continue
        lines += [f"{module} imports {each}" for each in sorted(imports(source, sources)) if not _in(each, table[name])]
    return lines


def _in(module: str, allowed: set[str]) -> bool:
    """Whether `module` or a package around it is allowed; kvviz alone is its public API, not its inside."""
    return any(module == each or (each != "kvviz" and module.startswith(f"{each}.")) for each in allowed)


def cycle(sources: Mapping[str, str]) -> list[str] | None:
    """Modules that import each other in a ring, with the `__init__` of every sub-package on the way."""
    graph = {module: set(_run_by_importing(module, source, sources)) for module, source in sources.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def _run_by_importing(module: str, source: str, known: Iterable[str]) -> Iterator[str]:
    """Modules that run when `module` is imported; the packages around it are running already."""
    for name in imports(source, known) & set(known):
        yield name
        parts = name.split(".")
        packages = (".".join(parts[:length]) for length in range(2, len(parts)))
        yield from (package for package in packages if not module.startswith(f"{package}.") and package != module)
