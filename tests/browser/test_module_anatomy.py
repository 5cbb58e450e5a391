"""The page on modules in Chromium: folding, what is not registered, stepping through hooks, one click that repairs."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.test_pages import visit

PROGRAM = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.rest = [nn.Linear(2, 2)]
    def forward(self, x):
        return self.rest[0](self.first(x))
model = Net()
batch = torch.ones(1, 2)"""


def test_the_tree_folds_and_a_list_is_repaired(page: Page, app_url: str) -> None:
    editor = visit(page, f"{app_url}/module_anatomy")
    tree = page.locator(".registration")
    row = tree.locator(".row.hanging", has_text="heads")
    expect(row).to_contain_text("not registered")
    expect(row.locator(".sign-no")).to_have_count(3)
    shown = tree.locator(".row:not(.head)").count()
    row.click()
    expect(tree.locator(".row:not(.head)")).to_have_count(shown - 6)
    page.keyboard.press("ArrowRight")
    expect(tree.locator(".row:not(.head)")).to_have_count(shown)
    page.keyboard.press("u")
    expect(tree.locator(".row", has_text="unused")).to_have_count(0)
    row.hover()
    expect(page.locator(".line.pointed")).to_have_attribute("data-number", "5")

    editor.fill(PROGRAM)  # typed lines would be indented further
    page.keyboard.press("Control+Enter")
    expect(tree.locator(".row.hanging", has_text="rest")).to_be_visible()
    page.get_by_role("button", name="Apply and compare").first.click()
    expect(editor).to_have_value(PROGRAM.replace("[nn.Linear(2, 2)]", "nn.ModuleList([nn.Linear(2, 2)])"))
    expect(page.locator(".registration")).to_have_count(2)
    expect(page.locator(".registration").nth(1)).to_contain_text("all tensors registered")


def test_hooks_are_stepped(page: Page, app_url: str) -> None:
    visit(page, f"{app_url}/module_anatomy?ma-view=hooks")
    figure = page.locator(".brackets")
    expect(figure.locator(".event")).not_to_have_count(0)
    figure.locator(".events").focus()
    page.keyboard.press("ArrowRight")
    expect(figure.locator(".event.now .words")).to_have_text("model(...) begins")
    page.keyboard.press("End")
    expect(figure.locator(".event.later")).to_have_count(0)
    page.keyboard.press("h")
    expect(figure.locator(".event.open")).to_have_count(0)
    changed = figure.locator(".event", has_text="returns other output")
    changed.click()
    expect(figure.locator(".said")).to_contain_text("The 2-norm goes from")
    expect(figure.locator(".said")).to_contain_text("line 34")
