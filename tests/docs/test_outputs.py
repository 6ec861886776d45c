"""What a page's commands print stands on the page, and the build says when they print something else."""

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
echo svg > figure.svg
```

<!-- output: line -->

Then:

<!-- output: file -->

<!-- image: figure.svg | A figure -->
"""


@pytest.fixture
def page(tmp_path):
    (tmp_path / 'tutorials').mkdir()
    page = tmp_path / 'tutorials' / 'page.md'
    page.write_text(PAGE)
    return page


def test_a_page_is_written_once_and_checked_by_what_is_printed(page):
    assert outputs.differences(page) == []
    filled = outputs.fill_page(page)
    assert '```text\nline 1\n...\nline 2\n```\n\nThen:\n\n<!-- output: file -->\n\n```text\nfile\n```\n' in filled
    assert filled.endswith('![A figure](../images/page-figure.svg)\n')
    assert (page.parents[1] / 'images' / 'page-figure.svg').read_text() == 'svg\n'
    page.write_text(filled)
    assert outputs.fill_page(page) == filled
    page.write_text(filled.replace('COUNT=2', 'COUNT=1'))  # other numbers, and fewer lines
    assert outputs.differences(page) == ['...']
    page.write_text(filled.replace('echo "line', 'echo "another line'))
    assert outputs.differences(page) == ['line 1', 'line 2']


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


def test_no_page_has_an_empty_place():
    for page in (ROOT / 'docs').rglob('*.md'):
        for match in outputs.SHOWN.finditer(page.read_text()):
            assert match[0].count('\n') > 2, f'{page}: {match[0]!r}: python docs/_ext/outputs.py {page}'
