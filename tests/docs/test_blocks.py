"""Every code block of the documentation is run, or checked: commands, options, configs, imports."""

import re
from pathlib import Path

import pytest
from doc_blocks import ROOT, Block, blocks, check, parser_of
from each import each

PAGES = [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', ROOT / 'studies' / 'README.md']
PAGES += sorted([*(ROOT / 'docs').rglob('*.md'), *(ROOT / 'configs').rglob('*.md')])


@pytest.fixture(autouse=True)
def _checkout(monkeypatch):
    """The reader is in a checkout."""
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize(
    'page', [page for page in PAGES if blocks(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_what_a_page_shows_exists(page, tmp_path):
    found = blocks(page)
    files = {block.file for block in found}
    for number, block in enumerate(block for block in found if not block.runs):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            check(block, files, folder)
        except Exception as error:
            pytest.fail(f'{block}: {error!r}')


def test_commands_in_sentences_exist():
    for page in each(PAGES):
        for command in re.findall(r'`((?:mmlape(?= [a-z])|tools/\w+\.py) [^`]+)`', page.read_text()):
            program, *words = command.split()
            name = words.pop(0) if program == 'mmlape' else Path(program).stem.replace('_', '-')
            known = options_of(parser_of(name))
            unknown = [word for word in words if word.startswith('--') and word.partition('=')[0] not in known]
            assert not unknown, f'`{command}`: there is no {unknown}'


def options_of(parser):
    """Return the options of a parser and of the parsers of its commands."""
    inner = [one for action in parser._actions if isinstance(action.choices, dict) for one in action.choices.values()]
    return {'--', *parser._option_string_actions}.union(*map(options_of, inner))


TINY = 'configs/segmenter/segmenter_deit-tiny_4xb2-160k_ade20k.py'


@pytest.mark.parametrize(
    ('language', 'code', 'reason'),
    [
        ('bash', 'mmlape trian CONFIG', "no command 'trian'"),
        ('bash', 'mmlape train CONFIG --sed 1', 'does not take'),
        ('bash', 'mmlape train configs/no.py', 'does not exist'),
        ('bash', 'for c in studies/lape-table7.yml:{rpe,no}; do mmlape model-cost $c; done', "no arm 'no'"),
        ('bash', f'mmlape multi-seed {TINY} -- --no-such-option', 'does not take'),
        ('bash', 'python -m benchmarks adapter --no-such-option', 'does not know'),
        ('bash', 'make dmeo', 'unknown'),
        ('bash', 'mmlapse train', 'unknown'),
        ('python', 'import mmlape\n\nmmlape.add_lap(model)', 'Undefined name `model`'),
        ('python', 'import mmlape\n\nmmlape.add_lap(1)', "no attribute 'add_lap'"),
        ('python', "backbone = dict(type='mmlape.VisionTransformer', pe_join='lape')", 'pe_join'),
    ],
)
def test_what_does_not_exist_is_an_error(language, code, reason, tmp_path, capsys):
    with pytest.raises(Exception) as raised:
        check(Block(ROOT / 'README.md', 1, language, code, '', ''), set(), tmp_path)
    assert reason in f'{raised.value}{raised.value!r}{capsys.readouterr().err}'
