"""The documentation site, for a release: it is built without a warning, and a browser opens every page of it."""

import functools
import http.server
import re
import shutil
import sys
import threading
from pathlib import Path

import pytest
import tiny

pytestmark = pytest.mark.release  # `make docs` builds the site too; test_pages.py has what is found without
ROOT = Path(__file__).resolve().parents[2]
WIDTHS = (1440, 390)
CHROMIUM = next(filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None)
IMAGES = '[...document.images].filter(i => !i.alt || !i.naturalWidth).map(i => i.outerHTML)'
OVERFLOW = 'document.documentElement.scrollWidth - document.documentElement.clientWidth'


@pytest.fixture
def site(once):
    """The pages, with all that tutorials print."""
    words = ('-m', 'sphinx', '-c', 'docs', '-W', '--keep-going', '-q', '.')
    return once('site', lambda folder: tiny.run(sys.executable, *words, folder, cwd=ROOT))


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def address(site):
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), functools.partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f'http://127.0.0.1:{server.server_port}/'
        server.shutdown()


@pytest.fixture
def page(address):
    """A page of a browser, and a list of what went wrong in it."""
    if CHROMIUM is None:
        pytest.skip('there is no Chromium; on Debian: apt-get install -y --no-install-recommends chromium')
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=['--no-sandbox', '--disable-gpu'])
        page, wrong = browser.new_page(), []
        page.on('console', lambda line: wrong.append(line.text) if line.type in ('error', 'warning') else None)
        page.on('pageerror', lambda error: wrong.append(str(error)))
        page.on('request', lambda one: None if one.url.startswith(('data:', address)) else wrong.append(one.url))
        yield page, wrong
        browser.close()


def test_every_page(site, address, page):
    """At both widths the console is silent, images are there, nothing is too wide."""
    files = sorted({file for file in site.rglob('*.html') if '_static' not in file.parts} - {site / 'index.html'})
    assert len(files) > 60
    page, wrong = page
    page.goto(f'{address}index.html')
    page.wait_for_url('**/docs/index.html')
    for file in files:
        name = file.relative_to(site).as_posix()
        page.set_viewport_size(dict(width=WIDTHS[0], height=900))
        page.goto(address + name)
        assert not wrong, f'{name}: {wrong}'
        assert page.evaluate(IMAGES) == [], name
        for width in WIDTHS:
            page.set_viewport_size(dict(width=width, height=900))
            assert page.evaluate(OVERFLOW) <= 0, f'{name} is wider than {width} pixels'


def test_search_and_filter(site, address, page):
    page, wrong = page
    page.goto(f'{address}search.html?q=lape-shared')
    page.wait_for_function('document.querySelectorAll("ul.search li a").length > 3')
    found = page.locator('ul.search li a').evaluate_all('links => links.map(link => link.getAttribute("href"))')
    assert any('understand/lape' in link for link in found)

    page.goto(f'{(site / "docs/reference/catalogue.html").as_uri()}')  # from a file: the filter needs no server
    rows = page.locator('#catalogue tbody tr:visible')
    everything = rows.count()
    assert everything > 500
    page.select_option('select[name=task]', 'segmentation')
    page.select_option('select[name=joining]', 'lape')
    assert 20 < rows.count() < everything
    page.fill('input[name=words]', 'Upernet tiny')
    names = rows.locator('td:first-child').all_text_contents()
    assert 'upernet_deit-tiny-adapter-lape_4xb2-160k_ade20k' in names
    assert all('UperNet' in row and 'lape' in row for row in rows.all_text_contents())
    assert [line for line in wrong if not line.startswith('file:')] == []


def test_everything_is_described(site):
    commands = (site / 'docs/reference/commands.html').read_text()
    options = (site / 'docs/reference/options.html').read_text()
    assert commands.count('<dd>') > 150 and not re.search(r'<dd>\s*(<p>\s*</p>)?\s*</dd>', commands)
    rows = re.findall(r'<tr.*?</tr>', options, re.S)
    empty = [row for row in rows if re.search(r'<td>(<p></p>)?</td>\s*</tr>', row)]
    assert len(rows) > 200 and not empty, empty[:3]
    adapter = options.partition('<section id="vitadapter">')[2].partition('<section')[0]
    named = set(re.findall(r'<tr[^>]*><td><p><code[^>]*><span class="pre">(.+?)</span>', adapter))
    assert {'arch', 'conv_inplane', 'pe_joining', 'patch_norm', '**kwargs'} <= named  # its own, and the ViT's
    assert not named & {'num_registers', 'final_norm', 'out_type'}  # which it does not take


def test_links_of_the_catalogue(site):
    page = site / 'docs/reference/catalogue.html'
    links = {link for link in re.findall(r'<td><a href="([^"]+)"', page.read_text()) if not link.startswith('#')}
    assert len(links) > 200 and all((page.parent / link).is_file() for link in links)


def test_a_link_inside_the_catalogue_sets_its_filter(site, page):
    page, _ = page
    page.goto(f'{(site / "docs/reference/catalogue.html").as_uri()}')
    page.locator('a[href="#words=mpvg-table3.yml%3A"]').click()
    rows = page.locator('#catalogue tbody tr:visible')
    page.wait_for_function("document.querySelector('input[name=words]').value === 'mpvg-table3.yml:'")
    assert rows.count() == 6  # its arms, and the configs that two of them are


def test_equations_need_no_script(site):
    page = (site / 'docs/understand/lape.html').read_text()
    assert page.count('<math') > 10 and 'mathjax.js' not in page.lower() and '\\[' not in page


def test_a_figure_of_each_kind_of_position_encoding(site):
    modules = (ROOT / 'mmlape/models/position').glob('*.py')
    kinds = {
        kind
        for module in modules
        for kind in re.findall(r"POSITION_ENCODINGS.register_module\('(.+)'", module.read_text())
    }
    figures = re.findall(r'<img alt="([\w-]+):[^"]+"', (site / 'docs/understand/position.html').read_text())
    assert set(figures) == kinds and len(kinds) > 10
