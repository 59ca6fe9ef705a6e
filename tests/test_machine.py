"""Which machines compute fast in bfloat16, from made-up descriptions of them."""

import pytest

from tff_pcdd import machine

CPU = "the processor has neither AMX-BF16 nor AVX512-BF16"


@pytest.fixture
def cpuinfo(tmp_path, monkeypatch):
    """Describes a processor without GPUs by its flags."""
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(machine, "_GPU_DRIVERS", ())

    def describe(flags):
        lines = ["processor\t: 0", "model name\t: amx_bf16", f"flags\t\t: {flags}", "", "flags: x"]
        (tmp_path / "cpuinfo").write_text("\n".join(lines))

    return describe


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("fpu avx512f avx512_bf16 fsrm", None),
        ("fpu amx_bf16 avx512f amx_tile amx_int8", None),
        ("fpu avx2 avx512f avx512_vnni amx_tile", CPU),
        ("", CPU),
    ],
)
def test_processors(cpuinfo, flags, reason):
    cpuinfo(flags)
    assert machine.slow_bfloat16() == reason


def test_instructions_are_named_as_the_kernel_names_them(cpuinfo):
    cpuinfo("fpu avx512_bf16 amx_tile amx_bf16")
    assert machine.bfloat16_instructions() == ["amx_bf16", "avx512_bf16"]
    cpuinfo("fpu avx2")
    assert machine.bfloat16_instructions() == []


@pytest.mark.usefixtures("cpuinfo")
def test_a_system_without_a_description_is_slow():
    assert machine.slow_bfloat16() == CPU


def test_gpus_count_before_the_processor(cpuinfo, monkeypatch):
    cpuinfo("fpu avx512_bf16")
    capabilities = [(8, 0), (9, 0)]
    monkeypatch.setattr(machine, "_gpu_capabilities", lambda: capabilities)
    assert machine.slow_bfloat16() is None
    capabilities.append((7, 5))
    assert machine.slow_bfloat16() == "a GPU has compute capability 7.5, and 8.0 is needed"
    assert machine.slow_bfloat16(gpus=False) is None
    cpuinfo("fpu")
    assert machine.slow_bfloat16(gpus=False) == CPU


def test_gpus_are_those_that_tensorflow_sees(cpuinfo, monkeypatch):
    cpuinfo("fpu")
    monkeypatch.setattr(machine, "_GPU_DRIVERS", ("/",))
    asked = machine.tf.config
    monkeypatch.setattr(asked, "get_visible_devices", lambda kind: [kind])
    details = {"compute_capability": (8, 6)}
    monkeypatch.setattr(asked.experimental, "get_device_details", lambda device: details)
    assert machine.slow_bfloat16() is None
