"""Latent attention on the screen: the largest difference is read there, and a count that equals the API's."""

import re

import pytest
from playwright.sync_api import Page, expect

import kvviz


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_both_ways_are_the_same(page: Page, settle, dtype: str) -> None:
    page.goto("/latent")
    expect(page.get_by_role("heading", level=1)).to_have_text("Latent attention (MLA)")
    settle(page)
    page.get_by_role("radio", name=dtype).click()
    answer = page.get_by_role("heading", name=re.compile(f"Both ways give the same numbers.*{dtype}"))
    expect(answer).to_be_visible(timeout=60_000)
    settle(page)
    gap = float(re.search(r"difference is (\S+),", answer.inner_text())[1])
    assert gap <= {"float64": 1e-10, "float32": 1e-4}[dtype]
    assert dtype == "float64" or gap > 1e-9


def test_deepseek_v3_by_the_switch(page: Page, settle) -> None:
    page.goto("/latent")
    settle(page)
    page.get_by_role("radio", name="DeepSeek-V3").click()
    frame = kvviz.latent_counts(kvviz.LatentSizes(128, 512, 64, 128, 128), [4096], groups=8).set_index("way")
    for way in ("expanded", "absorbed", "mha"):
        cell = page.get_by_role("cell", name=f"{frame.loc[way, 'multiply_adds']:,}", exact=True)
        expect(cell.first).to_be_visible(timeout=60_000)
    settle(page)
    assert "latent_source=v3" in page.url
    for key in ("latent_expanded", "latent_absorbed", "latent_cached_bytes", "latent_multiply_adds"):
        expect(page.locator(f".st-key-{key} .main-svg").first).to_be_visible()
