"""The documentation is complete: every error has its section, every public name its entry, every picture is current."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

import fsspeckit
from fsspeckit.cli.app import main
from fsspeckit.common.errors import FsspeckitError, KeyColumnError
from test_exports import PUBLIC

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
ENTRIES = {
    name for page in DOCS.glob("reference*.md") for name in re.findall(r"^::: (\S+)", page.read_text("utf-8"), re.M)
}


def error_classes(base: type[FsspeckitError]) -> Iterator[type[FsspeckitError]]:
    yield base
    for child in base.__subclasses__():
        yield from error_classes(child)


def test_every_error_has_a_section_with_cause_and_action() -> None:
    for module in pkgutil.walk_packages(fsspeckit.__path__, "fsspeckit."):
        if not module.name.startswith("fsspeckit.integrations."):  # they need a scheduler or dbt
            importlib.import_module(module.name)
    text = (DOCS / "errors.md").read_text("utf-8")
    sections = {
        name.lower(): body for name, body in re.findall(r"^###? (\w+Error)\n\n(.*?)(?=^##|\Z)", text, re.M | re.S)
    }
    anchors = sections.keys() | set(re.findall(r'<a id="(\w+)">', text))
    classes = {each for each in error_classes(FsspeckitError) if each.__module__.startswith("fsspeckit.")}
    classes -= {each for each in classes if each.__name__.startswith("_")}
    assert len(classes) > 30
    assert {each.__name__.lower() for each in classes} == anchors
    unclear = [
        name
        for name, body in sections.items()
        if name != "fsspeckiterror" and not {"**Cause:**", "**Action:**"} <= {*body.split()}
    ]
    assert unclear == []


def test_an_error_names_its_section(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert KeyColumnError("id is null. Fill it.").docs == "docs/errors.md#keycolumnerror"
    for words, named in ((["--debug"], True), ([], False)):
        assert main(["history", str(tmp_path / "none"), *words]) == 1
        assert ("docs/errors.md#" in capsys.readouterr().err) == named


def test_every_public_name_is_in_the_reference() -> None:
    public = {(module, name): getattr(importlib.import_module(module), name) for module, name in PUBLIC}
    names = {
        (module, name): {f"{module}.{name}", f"{found.__module__}.{found.__qualname__}", found.__module__}
        for (module, name), found in public.items()
    }
    assert [name for name, found in names.items() if not found & ENTRIES] == []


def test_the_map_of_scenarios_is_built_but_not_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    settings = yaml.safe_load(text)
    assert settings["not_in_nav"].split() == ["/compliance.md"]
    assert text.count("compliance.md") == 1


@pytest.mark.parametrize("name", ["benchmarks.svg", "commit.svg", "pipeline.svg"])
def test_pictures_are_current(name: str) -> None:
    spec = spec_from_file_location("pictures", ROOT / "scripts" / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    pictures = module_from_spec(spec)
    spec.loader.exec_module(pictures)
    drawn = (DOCS / name).read_text("utf-8")
    assert drawn == pictures.PICTURES[name](), "run `python scripts/pictures.py`"
    assert len(ElementTree.fromstring(drawn)) > 10


def test_pictures_are_small_and_shown() -> None:
    pages = "".join(page.read_text("utf-8") for page in DOCS.glob("*.md"))
    for picture in [*DOCS.glob("*.png"), *DOCS.glob("*.svg")]:
        assert picture.stat().st_size < 150_000, picture
        assert f"]({picture.name})" in pages, picture


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 3
    for number, text in enumerate(code):
        exec(compile(text, f"{notebook.name}, code cell {number}", "exec", dont_inherit=True), namespace)


def test_notebooks_have_no_outputs() -> None:
    assert len(NOTEBOOKS) == 3
    cells = [cell for path in NOTEBOOKS for cell in json.loads(path.read_text("utf-8"))["cells"]]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
