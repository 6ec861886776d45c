"""The documentation site, for a release: it is built without a warning, and a browser opens every page of it."""

import functools
import http.server
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
