"""Each package says what it offers: ``__all__`` is complete and true; the linter keeps it sorted."""

import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest

import swactor
import swactor_diag
import swactor_process


def public_packages() -> list[str]:
    found = []
    for root in (swactor, swactor_process, swactor_diag):
        found.append(root.__name__)
        found += [
            info.name
            for info in pkgutil.walk_packages(root.__path__, root.__name__ + ".")
            if info.ispkg and not any(part.startswith("_") for part in info.name.split("."))
        ]
    return found


@pytest.mark.parametrize("package", public_packages())
def test_all_names_exist_and_stand_there_once(package: str) -> None:
    module = importlib.import_module(package)
    names: list[str] = getattr(module, "__all__", [])
    assert [name for name in names if not hasattr(module, name)] == []
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("package", public_packages())
def test_whatever_a_package_imports_for_its_users_is_in_all(package: str) -> None:
    module = importlib.import_module(package)
    names = set(getattr(module, "__all__", []))
    offered = {name for name, value in vars(module).items() if belongs_to(value, package) and name[0] != "_"}
    assert offered <= names


@pytest.mark.parametrize("package", public_packages())
def test_every_public_name_is_documented(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__doc__
    for name in getattr(module, "__all__", []):
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{package}.{name} has no docstring"


def belongs_to(value: object, package: str) -> bool:
    if isinstance(value, ModuleType):
        return False
    home = getattr(value, "__module__", None)
    return isinstance(home, str) and home.split(".")[0] == package.split(".", maxsplit=1)[0]
