"""The export directory has TensorFlow Serving's layout, and versions are written atomically."""

import json
import os
import re

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from tests.data.refusals import refuses
from tff_pcdd.errors import SettingError, WriteError
from tff_pcdd.export import layout, slugs


def model_server_config():
    """The part of TensorFlow Serving's message ModelServerConfig that is used here.

    Field names and types as in tensorflow_serving/config/model_server_config.proto.
    """
    file = descriptor_pb2.FileDescriptorProto(name="config.proto", package="s", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    for message, fields in {
        "ModelConfig": [
            ("name", 1, field.TYPE_STRING, field.LABEL_OPTIONAL, None),
            ("base_path", 2, field.TYPE_STRING, field.LABEL_OPTIONAL, None),
            ("model_platform", 4, field.TYPE_STRING, field.LABEL_OPTIONAL, None),
        ],
        "ModelConfigList": [
            ("config", 1, field.TYPE_MESSAGE, field.LABEL_REPEATED, ".s.ModelConfig")
        ],
        "ModelServerConfig": [
            ("model_config_list", 1, field.TYPE_MESSAGE, field.LABEL_OPTIONAL, ".s.ModelConfigList")
        ],
    }.items():
        described = file.message_type.add(name=message)
        for name, number, kind, label, type_name in fields:
            described.field.add(
                name=name, number=number, type=kind, label=label, type_name=type_name
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("s.ModelServerConfig"))()


def fill(directory, folder, text="a model"):
    with directory.version(folder) as path:
        (path / "saved_model.pb").write_text(text)


def test_models_config(tmp_path):
    directory = layout.ExportDirectory(tmp_path / "out", 1)
    client_ids = ("7", "f0001_41", "St. Mary's/ward 3")
    personal = layout.personal_folders(client_ids)
    for folder in personal:
        fill(directory, folder)
    fill(directory, layout.GLOBAL)
    fill(layout.ExportDirectory(tmp_path / "out", 12), layout.GLOBAL)
    (tmp_path / "out" / "personal" / "8" / "1").mkdir(parents=True)
    directory.write_models_config(dict(zip(personal, client_ids, strict=True)))
    config = model_server_config()
    text_format.Parse((tmp_path / "out" / "models.config").read_text(), config)
    listed = [(c.name, c.base_path, c.model_platform) for c in config.model_config_list.config]
    folders = ["global", "personal/7", "personal/f0001_41", "personal/st-mary-s-ward-3"]
    assert listed == [
        (folder.replace("/", "-"), f"/models/{folder}", "tensorflow") for folder in folders
    ]
    for folder in folders:
        assert (tmp_path / "out" / folder / "1" / "saved_model.pb").is_file()


def test_names_that_urls_and_disks_can_hold():
    ids = ["St. Mary", "Charité Campus West", "a.b", "..", "st mary", "ST-MARY", "Łódź/1", "東京"]
    made = slugs.slugs(ids)
    assert made[:3] == ["st-mary-2", "charite-campus-west", "a.b"]
    assert made[4:7] == ["st-mary-3", "ST-MARY", "lodz-1"]
    assert len({name.casefold() for name in made}) == len(ids)
    for name in made:
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name)
    assert slugs.slugs(["東京", "大阪"])[0] == made[7]
    # The id of a client is not given to another one.
    assert slugs.slugs(["A", "a", "a-2"]) == ["A", "a-3", "a-2"]
    assert len(slugs.slugs(["x" * 300])[0]) <= 100


def test_the_name_of_another_client_in_an_earlier_export_is_forgotten(tmp_path):
    for version, client_id in enumerate(["St. Mary", "st-mary"], 1):
        directory = layout.ExportDirectory(tmp_path, version)
        with directory.writing({}, {"personal/st-mary": client_id}):
            fill(directory, "personal/st-mary")
    assert json.loads((tmp_path / "sites.json").read_text()) == {}
    assert "# client" not in (tmp_path / "models.config").read_text()


def test_clients_are_named_beside_their_models(tmp_path):
    directory = layout.ExportDirectory(tmp_path, 1)
    with directory.writing({}, {"personal/lyon": "lyon", "personal/st-mary": "St. Mary\n"}):
        fill(directory, "personal/lyon")
        fill(directory, "personal/st-mary")
    again = layout.ExportDirectory(tmp_path, 2)
    with again.writing({}, {"personal/oslo": "Oslo #1"}):
        fill(again, "personal/oslo")
    sites = json.loads((tmp_path / "sites.json").read_text())
    assert sites == {
        "personal-oslo": "Oslo #1",
        "personal-st-mary": "St. Mary\n",
    }
    text = (tmp_path / "models.config").read_text()
    comments = [line.strip() for line in text.splitlines() if line.strip().startswith("#")]
    assert comments == ["# client Oslo #1", "# client St. Mary\\n"]
    config = model_server_config()
    text_format.Parse(text, config)
    names = [c.name for c in config.model_config_list.config]
    assert names == ["personal-lyon", "personal-oslo", "personal-st-mary"]


def test_a_version_appears_only_when_it_is_complete(tmp_path):
    directory = layout.ExportDirectory(tmp_path, 1)
    with pytest.raises(RuntimeError), directory.version("global") as path:
        (path / "saved_model.pb").write_text("half")
        assert not (tmp_path / "global" / "1").exists()
        raise RuntimeError
    assert not list((tmp_path / "global").iterdir())


def test_a_version_is_replaced_completely(tmp_path):
    fill(layout.ExportDirectory(tmp_path, 1), "global", "old")
    # As left behind by a killed process.
    (tmp_path / "global" / ".1.99.tmp").mkdir()
    with refuses("export_dir", "already contains global/1", str(tmp_path)):
        layout.ExportDirectory(tmp_path, 1).check(["personal/3", "global"])
    directory = layout.ExportDirectory(tmp_path, 1, overwrite=True)
    directory.check(["global"])
    with directory.version("global") as path:
        (path / "other").write_text("new")
        assert (tmp_path / "global" / "1" / "saved_model.pb").read_text() == "old"
    assert [p.name for p in (tmp_path / "global").iterdir()] == ["1"]
    assert [p.name for p in (tmp_path / "global" / "1").iterdir()] == ["other"]


def test_unusable_directories_raise(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for path, message in (
        (tmp_path, "is not empty and holds no export"),
        (tmp_path / "thesis.tex", "thesis.tex is a file"),
    ):
        with pytest.raises(SettingError) as caught:
            layout.ExportDirectory(path, 1)
        assert (caught.value.setting, caught.value.value) == ("export_dir", str(path))
        assert message in caught.value.reason


SETTINGS = {"round": 3}


def test_a_directory_whose_name_is_not_in_utf_8(tmp_path):
    with refuses("export_dir", "is no name in UTF-8"):
        layout.ExportDirectory(tmp_path / os.fsdecode(b"a\xfc"), 1)
    assert not list(tmp_path.iterdir())


def test_an_interrupted_export_goes_on(tmp_path):
    directory = layout.ExportDirectory(tmp_path / "out", 1)
    directory.check(["global", "personal/0"], SETTINGS)
    with pytest.raises(KeyboardInterrupt), directory.writing(SETTINGS):
        with directory.version("global", 81.5) as path:
            (path / "saved_model.pb").touch()
        with directory.version("personal/0", 70.0) as path:
            (path / "saved_model.pb").touch()
            raise KeyboardInterrupt
    again = layout.ExportDirectory(tmp_path / "out", 1)
    again.check(["global", "personal/0"], SETTINGS)
    assert again.written == {"global": 81.5}
    # To another export, the version is one that exists already.
    for settings in ({"round": 2}, None):
        other = layout.ExportDirectory(tmp_path / "out", 1)
        with pytest.raises(SettingError, match="already contains global/1"):
            other.check(["global"], settings)
        assert other.written == {}
    with again.writing(SETTINGS), again.version("personal/0", 70.0) as path:
        (path / "saved_model.pb").touch()
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "global",
        "models.config",
        "personal",
    ]
    finished = layout.ExportDirectory(tmp_path / "out", 1)
    with pytest.raises(SettingError, match="already contains global/1"):
        finished.check(["global"], SETTINGS)


def test_a_version_that_was_being_replaced_is_put_back(tmp_path):
    fill(layout.ExportDirectory(tmp_path, 1), "global", "old")
    # As left behind by a process that was killed between its two renames.
    (tmp_path / "global" / "1").rename(tmp_path / "global" / ".1.old.tmp")
    (tmp_path / "global" / ".1.new.tmp").mkdir()
    with pytest.raises(SettingError, match="already contains global/1"):
        layout.ExportDirectory(tmp_path, 1).check(["global"])
    assert [p.name for p in (tmp_path / "global").iterdir()] == ["1"]
    assert (tmp_path / "global" / "1" / "saved_model.pb").read_text() == "old"


def test_a_version_that_cannot_be_replaced_stays(tmp_path, monkeypatch):
    fill(layout.ExportDirectory(tmp_path, 1), "global", "old")
    directory = layout.ExportDirectory(tmp_path, 1, overwrite=True)
    rename = os.replace

    def fail(source, target, **directories):
        if ".new." in str(source):
            raise OSError(28, "No space left on device")
        rename(source, target, **directories)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(WriteError, match=r"global/1: No space left on device"):
        fill(directory, "global", "new")
    assert (tmp_path / "global" / "1" / "saved_model.pb").read_text() == "old"
    assert [p.name for p in (tmp_path / "global").iterdir()] == ["1"]


def test_a_directory_has_one_exporting_process(tmp_path):
    directory = layout.ExportDirectory(tmp_path, 1)
    with directory.writing(SETTINGS):
        for call in (
            lambda: layout.ExportDirectory(tmp_path, 2).check([]),
            lambda: layout.ExportDirectory(tmp_path, 2).writing(SETTINGS).__enter__(),
        ):
            with pytest.raises(SettingError, match="another process is writing"):
                call()


def test_an_old_version_is_not_taken_for_one_that_was_being_renamed(tmp_path, monkeypatch):
    """Renaming fails, and what was to be renamed is removed."""
    fill(layout.ExportDirectory(tmp_path, 1), "global", "old")
    rename = os.replace

    def fail(source, target, **directories):
        if str(target).endswith(".old.tmp"):
            raise OSError(5, "Input/output error")
        rename(source, target, **directories)

    monkeypatch.setattr(os, "replace", fail)
    directory = layout.ExportDirectory(tmp_path, 1, overwrite=True)
    with pytest.raises(WriteError), directory.writing(SETTINGS):
        fill(directory, "global", "new")
    for _ in range(2):
        again = layout.ExportDirectory(tmp_path, 1, overwrite=True)
        again.check(["global"], SETTINGS)
        assert again.written == {}


@pytest.mark.parametrize("notes", ["", "[]", '{"settings": {"round": 3}}', '{"settings": 1, "'])
def test_notes_of_an_export_that_are_damaged(notes, tmp_path):
    fill(layout.ExportDirectory(tmp_path, 1), "global", "old")
    (tmp_path / ".unfinished.json").write_text(notes)
    with pytest.raises(SettingError, match="already contains global/1"):
        layout.ExportDirectory(tmp_path, 1).check(["global"], SETTINGS)
