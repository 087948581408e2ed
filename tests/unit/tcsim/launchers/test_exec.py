"""`tcsim exec`: launch files and recorded launches, what is compared, and what is refused."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcsim import OperandError, TensorMap
from tcsim.launchers import recording
from tcsim.launchers.comparison import compare
from tcsim.launchers.elements import NAMES, Elements
from tcsim.launchers.job import execute
from tcsim.launchers.launch_file import read
from tcsim.launchers.recording import Buffer, Recording, from_fields
from tcsim.launchers.sources import DISTRIBUTIONS
from tcsim.numbers.formats import FORMATS
from tcsim.ptx import Hazard
from tests.support.cli_runs import answer, data, refusal
from tests.support.launcher_fakes import SCALE

LAUNCH = """
kernel = "scale"
grid = 2
block = [32]
arch = "sm_90"
params = [{ pointer = "y" }, { pointer = "x" }, { value = 2, type = "f32" }, { value = 40 }]

[arrays.x]
distribution = "range"
format = "f32"
shape = [5, 8]

[arrays.y]
distribution = "zeros"
format = "f32"
shape = [5, 8]

[expected.y]
distribution = "range"
step = 2
shape = [5, 8]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scale.ptx").write_text(SCALE)
    (tmp_path / "launch.toml").write_text(LAUNCH)
    return tmp_path


def recorded(**changes: Any) -> Recording:
    before = np.arange(40, dtype=np.float32)
    shape = {"elements": Elements("f32"), "shape": (5, 8)}
    start = 0x7F0000000000
    buffers = (
        Buffer("y", start, np.zeros(160, np.uint8), (3 * before).view(np.uint8), **shape),
        Buffer("x", start + 512, before.view(np.uint8), before.view(np.uint8), **shape),
    )
    params = (
        start.to_bytes(8, "little"), (start + 512).to_bytes(8, "little"), np.float32(3).tobytes(), np.uint32(40).tobytes(),
    )  # fmt: skip
    given = {"arch": "sm_90", "gpu": "a GPU", "driver": "1", "launcher": "a test", "notes": ("one thing",)} | changes
    return Recording(SCALE.encode(), "scale", (2, 1, 1), (32, 1, 1), params, buffers, **given)


# --- what runs


def test_a_launch_file_runs(folder: Path) -> None:
    found = data("exec", "scale.ptx", "--launch", "launch.toml", "--output", "out")
    assert found["schema"] == 1 and found["equal"] and found["passed"] and found["completed"]
    assert [own["compared"] for own in found["comparisons"]] == [40] and found["files"] == {"y": "out/y.npy"}
    assert np.array_equal(np.load("out/y.npy"), 2 * np.arange(40, dtype=np.float32).reshape(5, 8))
    assert "as expected" in answer("exec", "scale.ptx", "-l", "launch.toml", "--schedule", "7", "--arch", "sm_100")


def test_what_differs_is_named_and_the_status_says_so(folder: Path) -> None:
    (folder / "wrong.toml").write_text(LAUNCH.replace("value = 2, type", "value = 2.0000002, type"))
    printed = answer("exec", "scale.ptx", "--launch", "wrong.toml", status=1)
    assert "39 of 40" in printed and printed.endswith("not as expected\n")
    assert "first: [0, 1] is 0x40000001 = 2.0000002, expected 0x40000000 = 2.0" in printed
    found = data("exec", "scale.ptx", "--launch", "wrong.toml", status=1)["comparisons"][0]
    assert (
        found["differing"] == found["unequal"] == 39
        and found["first"]["index"] == [0, 1]
        and found["first"]["ulp"] == 1
    )
    (folder / "wrong.toml").write_text(LAUNCH.replace("value = 2, type", "value = 2.0000002, type") + "ulp = 2\n")
    assert "0 differ, 39 not equal, by up to" in answer("exec", "scale.ptx", "--launch", "wrong.toml")


def test_a_hazard_is_a_failure(folder: Path) -> None:
    (folder / "wrong.toml").write_text(LAUNCH.replace("value = 40", "value = 64"))
    found = data("exec", "scale.ptx", "--launch", "wrong.toml", status=1)
    assert not found["completed"] and found["hazards"][0]["name"] == "GMEM_UNMAPPED"
    (folder / "wrong.toml").write_text(LAUNCH.split("[expected")[0] + "[limits]\ninstructions = 3\n")
    assert "failed: LIMIT" in answer("exec", "scale.ptx", "--launch", "wrong.toml", status=1)


def test_a_launch_that_ends_with_a_mistake_has_not_passed(folder: Path) -> None:
    """Hazards that are errors count whether or not they stop the launch; others do not."""
    found = execute(read(folder / "launch.toml", SCALE.encode()))
    trap = Hazard("TRAP", "a thread executed trap")
    assert found.passed and found.run.completed
    assert not replace(found, run=replace(found.run, hazards=[trap])).passed


def test_progress_is_told(folder: Path) -> None:
    told: list[tuple[int, int]] = []
    execute(read(folder / "launch.toml", SCALE.encode()), lambda ended, clusters, _: told.append((ended, clusters)))
    assert told and {clusters for _, clusters in told} == {2}


MAP_KERNEL = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry copy(.param .align 64 .b8 map[128], .param .u64 to, .param .b16 half, .param .b8 given[3])
{
  .reg .b64 %a<4>; .reg .b16 %h<2>;
  ld.param.u64 %a0, [to];
  ld.param.u64 %a1, [map];
  ld.param.b16 %h0, [half];
  ld.param.u8 %h1, [given+2];
  st.global.u64 [%a0], %a1;
  st.global.b16 [%a0+8], %h0;
  st.global.u8 [%a0+10], %h1;
  ret;
}
"""


def test_every_kind_of_parameter(folder: Path) -> None:
    text = """
params = [
  { tensor_map = "x", offset = 64, data_type = "FLOAT16", global_dim = [8, 4], global_strides = [16], box_dim = [8, 2], swizzle = "NONE" },
  { pointer = "to", offset = 16 },
  { value = 1.5, type = "bf16" },
  { bytes = "01 02 ff" },
]
[arrays.x]
values = [[1, 2], [3, 4]]
format = "f16"
shape = [2, 2]
[arrays.to]
distribution = "zeros"
format = "u8"
shape = 32
address = 0x10000
"""
    (folder / "map.toml").write_text(text.replace("offset = 64, ", "", 1))
    found = execute(read(folder / "map.toml", MAP_KERNEL.encode()))
    after = found.after["to"]
    x = found.addresses["x"]
    tensor_map = TensorMap("FLOAT16", (8, 4), (16,), (8, 2), swizzle="NONE")
    assert found.passed and found.addresses["to"] == 0x10000
    assert after[16:24].tobytes() == tensor_map.encode(x)[:8] and after[24:27].tolist() == [0xC0, 0x3F, 0xFF]
    (folder / "map.toml").write_text(text)
    assert "params[0].offset=64; valid: an integer from 0 to 8" in refusal("exec", "scale.ptx", "--launch", "map.toml")


@pytest.mark.parametrize("name", NAMES)
def test_arrays_of_every_element(name: str, folder: Path) -> None:
    """Generated, packed into bytes and read back; a file of its codes is the same array."""
    own = Elements(name)
    codes = np.arange(16, dtype=np.uint64) & (own.format.code_mask if own.format else 0xFF)
    codes = codes.astype(own.dtype)
    assert (own.to_codes(own.to_bytes(codes)) == codes).all() and len(own.to_bytes(codes)) == own.size((4, 4))
    np.save(folder / "codes.npy", codes.reshape(4, 4))
    text = f'[arrays.a]\nfile = "codes.npy"\nformat = "{name}"\n[arrays.b]\ndistribution = "codes"\nformat = "{name}"\nshape = [4, 4]\nseed = 3\n'
    if name not in FORMATS or FORMATS[name].kind == "integer":
        text += f'[arrays.c]\ndistribution = "integers"\nformat = "{name}"\nshape = [2, 8]\nlow = 1\nhigh = 3\n'
    elif FORMATS[name].kind == "float" and name != "ue8m0":
        text += (
            f'[arrays.c]\ndistribution = "normal"\nformat = "{name}"\nshape = [2, 8]\n' if FORMATS[name].signed else ""
        )
    (folder / "arrays.toml").write_text(text)
    regions = {region.name: region for region in read(folder / "arrays.toml", b"").regions}
    assert (regions["a"].before == own.to_bytes(codes)).all() and regions["a"].shape == (4, 4)
    assert (
        regions["b"].before.any() and (regions["b"].before == read(folder / "arrays.toml", b"").regions[1].before).all()
    )
    assert own.value_text(int(codes[1])) and own.code_text(int(codes[1])).startswith("0x")


def test_the_generators_are_all_here() -> None:
    assert set(DISTRIBUTIONS) == {"zeros", "constant", "range", "integers", "uniform", "normal", "codes"}
    assert tomllib.loads(LAUNCH)["grid"] == 2


def test_ulps_are_codes_in_order() -> None:
    """Of every pair of codes of small formats: their distance in the sorted list of values."""
    counted = 0
    for name in ("e4m3", "e2m1", "s4", "s8", "u8", "ue8m0", "e3m2"):
        own = Elements(name)
        codes = np.arange(1 << own.width, dtype=own.dtype)
        values = np.asarray(own.values(codes), np.float64)
        places = np.searchsorted(np.unique(values[~np.isnan(values)]), values)
        first, second = (part.reshape(-1) for part in np.meshgrid(codes, codes))
        found = own.ulps(first, second)
        nan = np.isnan(values)
        want = np.abs(places[first] - places[second]).astype(np.uint64)
        one, both = nan[first] ^ nan[second], nan[first] & nan[second]
        want[one], want[both] = 2**64 - 1, 0
        assert (found == want).all(), name
        counted += len(found)
    assert counted > 100_000


def test_nan_is_not_near_a_number() -> None:
    got, want = (np.float32([1, x, np.nan]).view(np.uint8) for x in (2, np.nan))
    found = compare("x", Elements("f32"), (3,), got, want, ulp=1 << 62)
    assert found.differing == 1 and found.first is not None and found.first.ulps is None and found.first.index == (1,)


def test_bytes_that_are_no_codes_differ_and_are_named() -> None:
    """A kernel may leave anything in a byte that should hold an fp6 code."""
    got, want = np.uint8([0xFF, 0x21]), np.uint8([0x3F, 0x20])
    found = compare("x", Elements("e3m2"), (2,), got, want, ulp=1)
    assert found.differing == 1 and "0xff = not a code" in found.lines()[1]


@pytest.mark.parametrize(
    ("name", "values", "codes"),
    [
        ("s64", [-1.0, 2.0**62], [2**64 - 1, 2**62]), ("u64", [2**64 - 1], [2**64 - 1]), ("s1z4m11", [-5], [0x8005]), ("s16", [-2], [0xFFFE]),
        ("b1", [1, 0], [1, 0]), ("f16", [1e9], [0x7BFF]), ("u32", np.uint8([7]), [7]),
    ],
)  # fmt: skip
def test_numbers_become_codes(name: str, values: Any, codes: list[int]) -> None:
    assert Elements(name).encoded(np.array(values)).tolist() == codes


@pytest.mark.parametrize(
    ("name", "value"), [("s16", 1e300), ("u64", -1), ("u64", 2.0**64), ("s64", np.inf), ("u16", 0.5)]
)
def test_numbers_that_are_no_integers_of_the_type(name: str, value: float) -> None:
    with pytest.raises(OperandError, match=f"^{name} holds"):
        Elements(name).encoded(np.array([value]))


# --- recorded launches


def test_a_recording_comes_back_and_replays(folder: Path) -> None:
    recording.write(folder / "launch.npz", recorded())
    recording.write(folder / "again.npz", recorded())
    assert (folder / "launch.npz").read_bytes() == (folder / "again.npz").read_bytes()
    found = data("exec", "launch.npz")
    assert found["equal"] and found["notes"] == ["one thing"] and found["arrays"][0]["shape"] == [5, 8]
    fields = recorded().fields()
    spoilt = fields["buf0_after"].copy()
    spoilt[9] ^= 1
    recording.write(folder / "wrong.npz", from_fields(fields | {"buf0_after": spoilt}, "spoilt"))
    assert "first: [0, 2] is 0x40c00000 = 6.0, expected" in answer("exec", "wrong.npz", status=1)
    recording.write(folder / "scratch.npz", from_fields(fields | {"buf0_after": spoilt, "buf0_scratch": 1}, "spoilt"))
    assert data("exec", "scratch.npz")["comparisons"][0]["name"] == "x"


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no kernel": ({"ptx": None, "entry": None}, "is not a recorded launch: it has no ptx, entry"),
    "later": ({"version": 2}, "has version 2 of a recorded launch; valid: up to 1"),
    "text": ({"entry": b"\xff\xfe"}, "entry is not a text"),
    "grid": ({"grid": (1, 1)}, "grid is [1, 1]; valid: 3 integers from 1"),
    "float grid": ({"grid": (1.0, 1.0, 1.0)}, "grid is [1.0, 1.0, 1.0]; valid: 3 integers"),
    "zero block": ({"block": (0, 1, 1)}, "block is [0, 1, 1]"),
    "smem": ({"smem": -1}, "smem is -1"),
    "gap": ({"param1": None}, "is not a whole recording: it has no param1"),
    "no memory": ({"buf0_before": None}, "it has no buf0_before"),
    "short after": ({"buf0_after": np.zeros(4, np.uint8)}, "buf0_after is 4 bytes; valid: 160"),
    "shape": ({"buf0_shape": (5, 9)}, "buf0_shape is (5, 9) of f32; valid: what has 160 bytes"),
    "format": ({"buf0_format": "f33"}, "buf0_format='f33'; nearest: f32"),
    "names": ({"buf1_name": "y"}, "two buffers are named 'y'"),
    "overlap": ({"buf1_address": 0x7F0000000010}, "overlaps what is mapped"),
    "shared window": ({"buf1_address": 1 << 63}, "valid: integers from 1 to"),
    "not PTX": ({"ptx": "hello"}, "tcsim: "),
    "other entry": ({"entry": "scales"}, "no kernel 'scales'; nearest: scale"),
    "many threads": ({"block": (4096, 1, 1)}, "block.x=4096; valid: 1 to 1024"),
    "old GPU": ({"arch": "sm_80"}, "does not run code for sm_90"),
    "short param": ({"param0": np.zeros(3, np.uint8)}, "is 3 bytes; valid: 8 bytes"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_recordings_are_one_line(name: str, folder: Path) -> None:
    changes, said = BROKEN[name]
    fields = {key: value for key, value in (recorded().fields() | changes).items() if value is not None}
    arrays = {key: np.frombuffer(value.encode() if isinstance(value, str) else value, np.uint8) if isinstance(value, (str, bytes)) else value for key, value in fields.items()}  # fmt: skip
    np.savez(folder / "launch.npz", **arrays)
    text = refusal("exec", "launch.npz")
    assert said in text and text.count("tcsim: ") == 1 and len(text) < 1000


def test_foreign_files_and_other_wrong_use(folder: Path) -> None:
    np.savez("foreign.npz", a=np.zeros(3))
    assert "is not a recorded launch: it has no ptx, entry, grid, block, cluster, smem" in refusal(
        "exec", "foreign.npz"
    )
    Path("text.npz").write_text("hello")
    assert "is no .npz or .npy file" in refusal("exec", "text.npz")
    recording.write("launch.npz", recorded())
    cut = Path("launch.npz").read_bytes()
    Path("cut.npz").write_bytes(cut[:-40])
    assert "damaged" in refusal("exec", "cut.npz")
    place = cut.index(b"ptx.npy") + 60
    Path("bad.npz").write_bytes(cut[:place] + bytes(8) + cut[place + 8 :])
    assert "'ptx.npy' is damaged" in refusal("exec", "bad.npz")
    np.savez("texts.npz", ptx=np.array(["a", "b"]))
    assert "has no entry" in refusal("exec", "texts.npz")
    np.savez("texts.npz", **(recorded().fields() | {"ptx": np.array(["a", "b"])}))
    assert "'ptx.npy' is not a text" in refusal("exec", "texts.npz")
    assert "no file 'launch.ptx'; here are scale.ptx" in refusal("exec", "launch.ptx", "--launch", "launch.toml")
    assert "needs --launch" in refusal("exec", "scale.ptx")
    assert "no --launch, which is for PTX" in refusal("exec", "launch.npz", "--launch", "launch.toml")
    assert "--schedule 'never'" in refusal("exec", "launch.npz", "--schedule", "never")
    assert "is not a regular file" in refusal("exec", str(folder), "--launch", "launch.toml")
    assert "is not a regular file" in refusal("exec", "scale.ptx", "--launch", str(folder))


# --- launch files that are wrong


WRONG = {
    "grdi = 2": "unknown key 'grdi'; nearest: grid",
    'grid = "2"': "grid='2'; valid: an integer from 1, or a list of up to 3",
    "grid = [1, 2, 3, 4]": "a list of up to 3",
    '[arrays.b]\ndistribution = "range"\nformat = "f32"\nshape = 3\nstep = 99999999999999999999999': "integers of at most 64 bits",
    '[arrays.b]\ndistribution = "range"\nformat = "u8"\nshape = 3\nstep = 9223372036854775807': "arrays.b: u8 holds 0 to 255",
    "[arrays.b]\nvalues = 99999999999999999999999\nformat = 'u8'": "arrays.b: u8 holds 0 to 255",
    "grid = []": "grid=[]; valid: an integer from 1, or a list of up to 3",
    "grid = 0": "grid=0; valid: an integer from 1",
    "grid = true": "grid=True",
    'schedule = "soon"': "schedule='soon'; valid: \"late\", \"early\"",
    'arch = "sm_91"': "arch='sm_91'",
    "kernel = 3": "kernel=3; valid: a text",
    "dynamic_smem = -1": "dynamic_smem=-1; valid: an integer from 0",
    "dynamic_smem = 999999": "dynamic_smem=999999 beside",
    "limits = 3": "limits is 3; valid: a table",
    "[limits]\nminutes = 3": "unknown key 'limits.minutes'; nearest",
    "[limits]\nseconds = 0": "Limits: seconds=0; valid: numbers above 0",
    "params = 3": "params=3; valid: a list of tables",
    "params = [3]": "params[0] is 3; valid: { value = 3 }",
    'params = ["x"]': "params[0] is 'x'; valid: { pointer = \"x\" }",
    "params = [[3]]": "params[0] is [3]; valid: a table",
    "params = [{}]": "params[0] has none of them; valid: one of pointer, value",
    'params = [{ pointer = "z" }]': "params[0].pointer='z'; valid: an array: nearest: a",
    'params = [{ pointer = "a", ofset = 3 }]': "unknown key 'params[0].ofset'; nearest: offset",
    'params = [{ pointer = "a", offset = 17 }]': "params[0].offset=17; valid: an integer from 0 to 16",
    'params = [{ value = "3" }]': "params[0].value='3'; valid: a number",
    'params = [{ value = 3, type = "f33" }]': "params[0].type='f33'; valid: f16",
    'params = [{ value = 300, type = "u8" }]': "params[0].value=300: u8 holds 0 to 255",
    'params = [{ value = 0.5, type = "s32" }]': "s32 holds whole numbers",
    'params = [{ bytes = "0g" }]': "params[0].bytes='0g'; valid: two hexadecimal digits",
    'params = [{ tensor_map = "a", box = [8] }]': "unknown key 'params[0].box'; nearest: box_dim",
    'params = [{ tensor_map = "a", global_dim = [7], box_dim = [300] }]': "params[0]: TensorMap",
    'params = [{ tensor_map = "a", kind = "wide" }]': "params[0].kind='wide'; valid: tiled, im2col, im2col_wide",
    "[arrays.b]\nshape = 3": "arrays.b has no numbers; valid: one of file, values, distribution",
    '[arrays.b]\ndistribution = "zero"\nshape = 3': "arrays.b.distribution='zero'; valid: ",
    '[arrays.b]\ndistribution = "zeros"\nshape = 3': "arrays.b.format is missing; valid: f16",
    '[arrays.b]\ndistribution = "zeros"\nformat = "f16"': "arrays.b.shape is missing",
    '[arrays.b]\ndistribution = "zeros"\nformat = "f16"\nshape = 99999999999': "arrays.b.shape=99999999999; valid: up to 16777216 elements",
    '[arrays.b]\ndistribution = "zeros"\nformat = "e2m1"\nshape = 3': "valid: a multiple of 2 elements",
    '[arrays.b]\ndistribution = "zeros"\nformat = "f16"\nshape = 3\nhigh = 3': "unknown key 'arrays.b.high'",
    '[arrays.b]\ndistribution = "integers"\nformat = "u8"\nshape = 3\nhigh = 300': "arrays.b: u8 holds 0 to 255",
    '[arrays.b]\ndistribution = "integers"\nformat = "u8"\nshape = 3\nlow = 3\nhigh = 2': "arrays.b.high=2; valid: an integer from low=3",
    '[arrays.b]\nvalues = [[1], [2, 3]]\nformat = "u8"': "arrays.b.values",
    '[arrays.b]\nvalues = ["x"]\nformat = "u8"': "valid: a list of numbers",
    '[arrays.b]\nvalues = [1, 2]\nformat = "u8"\nshape = 3': "valid: what has 2 elements",
    '[arrays.b]\nfile = "none.npy"': "arrays.b.file='none.npy'; valid: an .npy or .npz file",
    '[arrays.b]\nfile = "some.npz"': "arrays.b.name is missing; valid: one, two",
    '[arrays.b]\nfile = "some.npz"\nname = "three"': "arrays.b.name='three'; valid: one, two",
    '[arrays.b]\nfile = "some.npz"\nname = "one"\nformat = "f32"': "arrays.b.file holds float64, not f32",
    '[arrays.b]\nfile = "some.npz"\nname = "two"\nformat = "e2m1"': "has a code 0xff, which e2m1 does not have",
    '[arrays.b]\nfile = "scale.ptx"': "is no .npz or .npy file",
    "[arrays.a2]\naddress = 0\nvalues = [1]\nformat = 'u8'": "arrays.a2.address=0; valid: an integer from 1",
    "[arrays.a2]\naddress = 9223372036854775807\nvalues = [1]\nformat = 'u8'": "array a2: Memory.map: address",
    '[expected.z]\nfile = "x.npy"': "unknown key 'expected.z'; nearest: a",
    '[expected.a]\nvalues = [1]': "expected.a has 4 bytes; valid: 16 bytes, as arrays.a has",
    "[expected.a]\nvalues = [1, 2, 3, 4]\nulp = -1": "expected.a.ulp=-1; valid: an integer from 0",
    "grid = ": "launch.toml is not TOML",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_launch_file_names_the_key(text: str, folder: Path) -> None:
    np.savez("some.npz", one=np.zeros(4), two=np.full(4, 255, np.uint8))
    ptx = (
        SCALE.replace("(.param .u64 to, .param .u64 from, .param .f32 factor, .param .u32 count)", "()").partition(
            "ld.param"
        )[0]
        + "ret;\n}"
    )
    (folder / "none.ptx").write_text(ptx)
    (folder / "launch.toml").write_text(text + "\n[arrays.a]\nvalues = [1, 2, 3, 4]\nformat = 'f32'\n")
    found = refusal("exec", "none.ptx", "--launch", "launch.toml")
    assert WRONG[text] in found and found.count("tcsim: ") == 1 and len(found) < 1000, found


def test_hostile_launch_files(folder: Path) -> None:
    for content, said in {
        b"x" * (2 << 20): "more than 1048576 bytes", b"\xff\xfe": "is not TOML", b"a = " + b"[" * 100_000: "is not TOML",
    }.items():  # fmt: skip
        (folder / "launch.toml").write_bytes(content)
        assert said in refusal("exec", "scale.ptx", "--launch", "launch.toml")
    (folder / "launch.toml").write_text(
        LAUNCH.replace("arrays.y", "arrays.'../y'").replace("expected.y", "expected.'../y'").replace('"y"', '"../y"')
    )
    assert "cannot be a file" in refusal("exec", "scale.ptx", "--launch", "launch.toml", "--output", "out")
