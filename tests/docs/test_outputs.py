"""What a page's commands print is shown on the page, and computed again only if it can have changed."""

import json
import sys

import pytest
from doc_blocks import ROOT

sys.path.append(str(ROOT / 'docs' / '_ext'))
outputs = pytest.importorskip('outputs')  # without Sphinx there are no pages

PAGE = """# A page

<!-- run: COUNT=2 -->
```bash
COUNT=1000
```

```bash
for n in $(seq $COUNT); do echo "line $n"; echo noise; done
echo "2026/11/24 20:25:02 - mmengine - INFO - $PWD/file" >&2
echo x >> RECORD
echo svg > figure.svg
```

<!-- output: line -->

Then:

<!-- output: file -->

<!-- image: figure.svg | A figure -->
"""


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.setattr(outputs, 'ROOT', tmp_path)
    monkeypatch.setattr(outputs, 'BUILD', tmp_path / 'build')
    outputs._package.cache_clear()
    (tmp_path / 'tutorials').mkdir()
    page = tmp_path / 'tutorials' / 'page.md'
    page.write_text(PAGE.replace('RECORD', str(tmp_path / 'runs')))
    yield page
    outputs._package.cache_clear()


def test_a_page_shows_what_is_printed(page):
    filled = outputs.fill_page(page)
    assert '```text\nline 1\n...\nline 2\n```\n\nThen:\n\n```text\nfile\n```\n' in filled
    assert filled.endswith('![A figure](/build/figures/page-figure.svg)\n')
    assert (page.parents[1] / 'build' / 'figures' / 'page-figure.svg').read_text() == 'svg\n'


def test_recorded_outputs_are_those_of_the_same_blocks_and_nothing_runs(page):
    runs, written = page.parents[1] / 'runs', page.read_text()
    nothing = outputs.fill_page(page, recorded=True)
    assert not runs.exists() and 'line 1' not in nothing and '![' not in nothing and 'Nothing was run' in nothing
    filled = outputs.fill_page(page)
    (page.parents[1] / 'mmlape').mkdir()
    (page.parents[1] / 'mmlape' / 'new.py').write_text('')  # another package
    outputs._package.cache_clear()
    recorded = outputs.fill_page(page, recorded=True)
    assert recorded.replace(f'\n{outputs.RECORDED}', '') == filled and runs.read_text() == 'x\n'
    page.write_text(written.replace('echo noise', 'echo other'))  # another block
    assert 'line 1' not in outputs.fill_page(page, recorded=True) and runs.read_text() == 'x\n'


@pytest.mark.parametrize(
    ('old', 'new', 'reason'),
    [
        ('echo svg > figure.svg', 'echo before; ls nowhere', r'failed: .*page.md:8 \(status 2\)(?s:.*)before'),
        ('output: line', 'output: nothing like it', 'nothing to show was printed'),
        ('> figure.svg', '> other.svg', 'figure.svg was not written'),
        (' | A figure', '', 'alternative text'),
    ],
)
def test_what_cannot_be_shown_stops_the_build(page, old, new, reason):
    page.write_text(page.read_text().replace(old, new))
    with pytest.raises(outputs.ExtensionError, match=reason):
        outputs.fill_page(page)


def test_what_is_recorded_is_of_the_blocks_that_pages_have():
    pages = [page for page in (ROOT / 'docs').rglob('*.md') if outputs.WEIGHTS.search(page.read_text())]
    assert pages
    for page in pages:
        found = [block for block in outputs.blocks(page) if block.runs]
        kept = json.loads((outputs.KEPT / f'{page.stem}.json').read_text())
        assert kept['blocks'] == outputs._sum_of_code(found), f'python docs/_ext/outputs.py {page} --record'
