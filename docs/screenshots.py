"""Takes the screenshots of the documentation: the pages that `--html` gives, in a headless Chromium.

    python docs/screenshots.py [NAME]...    writes docs/figures/*.png, or those; needs the extra `browser`, Chromium and ChromeDriver

They differ a little from one browser and its fonts to the next, so no test compares them; take them again when the page changes.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import tcsim
from tcsim.inspection.diagnosis_view import diagnosis_report
from tcsim.inspection.html_page import descriptor_page, instruction_page, tile_page
from tcsim.inspection.product_page import Tile, product_page
from tcsim.inspection.report_html import report_page
from tcsim.inspection.timeline_page import timeline_page
from tcsim.launchers import recording
from tcsim.launchers.check import timeline

FIGURES = Path(__file__).resolve().parent / "figures"
LAUNCHES = FIGURES.parent.parent / "tests" / "data" / "launches"
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
MOST_BYTES = 150_000


class Shot(NamedTuple):
    """One picture."""

    page: Callable[[], str]
    search: str  # what is looked up before it is taken; on a page without a search, the element that is pointed at
    dark: bool
    size: tuple[int, int]  # of the window, in CSS pixels


def _instruction() -> str:
    return instruction_page(tcsim.instruction(MMA, arch="sm_90"))


def _tile() -> str:
    return tile_page(tcsim.MatrixDescriptor.for_tile(8, 64, "f16", "K", "128B", start_address=1024))


def _wrong_descriptor() -> str:
    wrong = tcsim.MatrixDescriptor(start_address=1024, stride_byte_offset=64, swizzle="128B")
    return descriptor_page(wrong, 32, 16, "f16")


def _timeline() -> str:
    job = recording.read(LAUNCHES / "triton_matmul_desc_sm90.npz").job()
    planted = replace(job, ptx=job.ptx.replace(b"fence.proxy.async.shared::cta;", b""))
    return timeline_page(*timeline(planted))


def _product() -> str:
    ins = tcsim.instruction("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", arch="sm_90a")
    return product_page(ins, Tile(32, "NONE"))


def _warp_product() -> str:
    return product_page(tcsim.instruction(MMA, arch="sm_90"))


def _sparse_product() -> str:
    return product_page(tcsim.instruction("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", arch="sm_90"))


def _sparse_tensor_memory() -> str:
    ins = tcsim.instruction("tcgen05.mma.sp.cta_group::1.kind::f16", arch="sm_100a")
    idesc = tcsim.InstructionDescriptor("f16", 128, 64, a_format="bf16", sparse=True)
    return product_page(ins, Tile(idesc=idesc.encode()))


def _diagnosis() -> str:
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((128, 32), (32, 128)))
    observed = tcsim.gemm(a, b, instruction=tcsim.instruction(MMA, arch="sm_90")).view(np.float32)
    right = observed.copy()
    observed[:16] = random.standard_normal((16, 128))
    observed[:16, 96:] = 0
    observed[32:64, 64:] *= 2
    observed[96:] = right[:32]
    return report_page(diagnosis_report(MMA, tcsim.diagnose(MMA, a=a, b=b, observed=observed)))


SHOTS = {
    "page-diagnosis-light.png": Shot(_diagnosis, ".squares [data-letter=a]", False, (1000, 900)),
    "page-product-light.png": Shot(_product, "d 8,6", False, (1180, 920)),
    "page-product-dark.png": Shot(_warp_product, "d 8,6", True, (1100, 880)),
    "page-sparse-light.png": Shot(_sparse_product, "d 9,3", False, (760, 975)),
    "page-sparse-tmem-light.png": Shot(_sparse_tensor_memory, "d 9,3", False, (1180, 980)),
    "page-instruction-dark.png": Shot(_instruction, "d 8,6", True, (1000, 820)),
    "page-tile-dark.png": Shot(_tile, "1,8", True, (1180, 600)),
    "page-descriptor-light.png": Shot(_wrong_descriptor, "16,0", False, (1180, 620)),
    "page-timeline-dark.png": Shot(_timeline, "cp.async.bulk.tensor.2d.global", True, (1100, 700)),
}
"""By their names in docs/figures."""


def browser(dark: bool, size: tuple[int, int]) -> webdriver.Chrome:
    """A headless Chromium that prefers light or dark."""
    options = webdriver.ChromeOptions()
    for option in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--window-size={size[0]},{size[1]}",
    ):
        options.add_argument(option)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is not None:
        options.binary_location = chromium
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    return driver


def take(shot: Shot, path: Path) -> None:
    """One picture into a file."""
    driver = browser(shot.dark, shot.size)
    try:
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.html"
            page.write_text(shot.page(), encoding="utf-8")
            driver.get(page.as_uri())
            box = driver.find_element(By.ID, "search")
            if box.is_displayed():
                box.send_keys(shot.search, Keys.ENTER)
            else:
                driver.find_element(By.CSS_SELECTOR, shot.search).click()
            driver.execute_script("scrollTo(0, 0)")
            driver.save_screenshot(str(path))
    finally:
        driver.quit()


def main() -> int:
    """Take all, or those that are named; 1 if one is too large."""
    large = 0
    for name, shot in SHOTS.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        take(shot, FIGURES / name)
        size = (FIGURES / name).stat().st_size
        large += size > MOST_BYTES
        print(f"{name}: {size:,} bytes" + (", too large" if size > MOST_BYTES else ""))
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main())
