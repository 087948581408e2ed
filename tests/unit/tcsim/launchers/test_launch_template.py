"""Launch files to begin with: what the names and declarations of parameters say."""

from __future__ import annotations

import tomllib

import pytest

from tcsim.launchers.launch_template import parameters, template
from tcsim.ptx import parse

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_Z1kv", [(False, "u8")]),
        ("_Z1kPKdS0_Pm", [(True, "f64"), (True, "f64"), (True, "u64")]),
        ("_Z1kPK6__halfPS_S1_", [(True, "f16"), (True, "f16"), (True, "f16")]),
        ("_Z1kRK14CUtensorMap_stf", [(True, "map"), (False, "f32")]),
        ("_Z1kP6MyType", [(True, "")]),
        ("kernel", None),
        ("_Z1kIfEvT_", None),
        ("_Z1kS5_", None),
        ("_Z1k", []),
    ],
)
def test_parameters_of_a_mangled_name(name: str, expected: list[tuple[bool, str]] | None) -> None:
    assert parameters(name) == expected


def test_a_launch_file_is_one() -> None:
    """Pointers, numbers, a structure, a tensor map; dynamic shared memory; a block that the kernel requires."""
    source = f"""{HEAD}.extern .shared .align 16 .b8 buf[];
.visible .entry k(.param .align 64 .b8 m[128], .param .u64 p, .param .u32 n, .param .f32 x, .param .align 8 .b8 s[24])
.reqntid 64, 2
{{ .reg .u32 %r<2>; mov.u32 %r0, buf; ret; }}
"""
    found = tomllib.loads(template(parse(source).kernel(), "k.ptx"))
    assert found["block"] == [64, 2] and found["dynamic_smem"] == 0 and found["kernel"] == "k"
    assert [next(iter(own)) for own in found["params"]] == ["tensor_map", "pointer", "value", "value", "bytes"]
    assert [own["format"] for own in found["arrays"].values()] == ["f16", "f32"] and len(
        found["params"][4]["bytes"]
    ) == 48


def test_what_is_guessed_is_marked() -> None:
    source = f"{HEAD}.visible .entry k(.param .u64 p, .param .u32 n) .maxntid 96 {{ ret; }}"
    lines = template(parse(source).kernel(), "k.ptx").splitlines()
    assert [line for line in lines if "block" in line] == ["block = [96]  # ?"]
    assert all("?" in line for line in lines if line.lstrip().startswith(("{", "shape", "grid")))


def test_source_says_what_ptx_does_not() -> None:
    """extern "C" leaves no types in the name: names, pointers and formats come from the declaration, comments aside; of what is not simple nothing is taken."""
    ptx = f"{HEAD}.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1, .param .u32 k_param_2) {{ ret; }}"
    simple = 'extern "C" __global__ void __launch_bounds__(64) k(const int8_t *__restrict__ codes, /* , */ __half out[], unsigned n) {'
    found = tomllib.loads(template(parse(ptx).kernel(), "k.cu", simple))
    assert found["params"] == [{"pointer": "codes"}, {"pointer": "out"}, {"value": 1024}]
    assert {name: own["format"] for name, own in found["arrays"].items()} == {"codes": "s8", "out": "f16"}
    text = template(parse(ptx).kernel(), "k.cu", simple.replace("unsigned n", "void (*then)()"))
    assert '{ pointer = "a0" },  # k_param_0, .u64 ?' in text and 'format = "f32"  # ?' in text


def test_an_overloaded_kernel_keeps_its_whole_name() -> None:
    ptx = f"{HEAD}.visible .entry _Z1ki(.param .u32 n) {{ ret; }}\n.visible .entry _Z1kf(.param .f32 x) {{ ret; }}"
    module = parse(ptx)
    assert tomllib.loads(template(module.kernel("_Z1kf"), "k.cu"))["kernel"] == "_Z1kf"
    assert tomllib.loads(template(parse(ptx.partition("\n.visible .entry _Z1kf")[0]).kernel(), "k.cu"))["kernel"] == "k"
