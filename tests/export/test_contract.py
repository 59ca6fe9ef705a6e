"""Exports meet the requirements in the documentation of TensorFlow Serving's REST API.

https://www.tensorflow.org/tfx/serving/api_rest, https://www.tensorflow.org/tfx/serving/serving_config
"""

import re

import pytest
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import saved_model_pb2

from tests.export.conftest import EXPORTED

# Types that the API can represent in JSON, from the section "JSON mapping".
_JSON_TYPES = {
    types_pb2.DataType.Value(f"DT_{name}")
    for name in ("BOOL", "STRING", "INT8", "UINT8", "INT16", "INT32", "UINT32", "INT64", "UINT64",
                 "FLOAT", "DOUBLE")
}  # fmt: skip


def listed_models(export_dir):
    """Folders of the models in models.config, by name."""
    text = (export_dir / "models.config").read_text()
    return dict(re.findall(r'name: "(.+)"\s+base_path: "/models/(.+)"', text))


def signatures(export_dir, folder):
    """The signatures that TensorFlow Serving loads: those of the graph with the tag `serve`."""
    saved_model = saved_model_pb2.SavedModel()
    saved_model.ParseFromString((export_dir / folder / "1" / "saved_model.pb").read_bytes())
    (graph,) = [g for g in saved_model.meta_graphs if "serve" in g.meta_info_def.tags]
    return {
        name: signature
        for name, signature in graph.signature_def.items()
        if signature.method_name == "tensorflow/serving/predict"
    }


@pytest.mark.parametrize("method", EXPORTED)
def test_every_listed_model_has_a_folder_with_numbered_versions(method, exported):
    listed = listed_models(exported[method])
    assert sorted(listed) == ["global", *(f"personal-{k}" for k in range(3))]
    for folder in listed.values():
        (version,) = (exported[method] / folder).iterdir()
        assert version.name == "1"
        assert (version / "saved_model.pb").is_file()
        assert (version / "variables" / "variables.index").is_file()


@pytest.mark.parametrize("method", EXPORTED)
def test_signatures_can_be_called_with_json(method, exported):
    for folder in listed_models(exported[method]).values():
        found = signatures(exported[method], folder)
        assert sorted(found) == ["serving_bytes", "serving_default"]
        for signature in found.values():
            # With a single input, `instances` can be a list of values without the input's name.
            assert len(signature.inputs) == 1
            # With several outputs, answers contain their names.
            assert len(signature.outputs) > 1
            for tensor in (*signature.inputs.values(), *signature.outputs.values()):
                assert tensor.dtype in _JSON_TYPES
                # Row format requires a batch of any size as the first dimension.
                assert tensor.tensor_shape.dim[0].size == -1
            # Outputs with the suffix _bytes are encoded as base64, but labels are plain text.
            assert not [name for name in signature.outputs if name.endswith("_bytes")]
        # The suffix marks a string input with binary content.
        assert list(found["serving_bytes"].inputs) == ["image_bytes"]
        assert found["serving_bytes"].inputs["image_bytes"].dtype == types_pb2.DT_STRING
