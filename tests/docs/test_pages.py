"""What the pages of the site are made of, without building it: generated parts, and links between files."""

import re
import sys

import pytest
from doc_blocks import ROOT
from each import each

sys.path += [str(ROOT / 'docs'), str(ROOT / 'docs' / '_ext')]
pages = pytest.importorskip('pages')  # without Sphinx there are no pages

FILES = [ROOT / 'README.md', *(ROOT / 'studies').glob('*.md'), *ROOT.glob('C*.md')]
FILES += sorted([*(ROOT / 'docs').rglob('*.md'), *(ROOT / 'configs').rglob('*.md')])
LINK = re.compile(r'\]\(([^):#\s]+)(?:#[^)]*)?\)')


def test_every_option_argument_and_field_is_described():
    assert pages.commands().count('\n: ') > 150  # an option without help is an error, and so is a field
    assert pages.report_fields().count('\n| `') > 50
    options = pages.options()
    rows = re.findall(r'^\| `.*', options, re.M)
    assert len(rows) > 200 and not [row for row in rows if row.endswith('|  |')]
    adapter = options.partition('## ViTAdapter\n')[2].partition('\n## ')[0]
    named = set(re.findall(r'^\| `(.+?)`', adapter, re.M))
    assert {'arch', 'conv_inplane', 'pe_joining', 'patch_norm', '**kwargs'} <= named  # its own, and the ViT's
    assert not named & {'num_registers', 'final_norm', 'out_type'}  # which it does not take


def test_every_generated_part_has_a_function():
    named = {name for file in FILES for name in re.findall(r'^<!-- generated: (\w+) -->$', file.read_text(), re.M)}
    assert named == set(pages.GENERATED)


def test_links_lead_to_files():
    for file in each(FILES):
        for link in LINK.findall(re.sub(r'^```.*?^```$|`[^`\n]+`', '', file.read_text(), flags=re.M | re.S)):
            target = (ROOT / link[1:] if link.startswith('/') else file.parent / link).resolve()
            outside = ROOT not in target.parents or ROOT / 'build' in target.parents  # of GitHub, or built
            assert outside or target.exists(), f'{file}: {link}'
