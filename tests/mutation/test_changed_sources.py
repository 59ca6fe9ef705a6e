"""A changed file takes the place of the original one when it is imported."""

from tests.mutation import __main__ as program


def test_modules_of_a_changed_package_are_found(tmp_path):
    folder = program._ROOT / "tff_pcdd" / "data" / "partitions"
    changed = program._ChangedSource(folder / "__init__.py", "changed = True", str(tmp_path))
    spec = changed.find_spec("tff_pcdd.data.partitions")
    assert spec.origin == str(tmp_path / "__init__.py")
    assert spec.submodule_search_locations == [str(folder)]
    assert changed.find_spec("tff_pcdd.data") is None


def test_a_changed_module_is_no_package(tmp_path):
    path = program._ROOT / "tff_pcdd" / "data" / "holdout.py"
    changed = program._ChangedSource(path, "changed = True", str(tmp_path))
    assert changed.find_spec("tff_pcdd.data.holdout").submodule_search_locations is None
