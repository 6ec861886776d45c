"""Write configs/README.md, the catalogue, from the metafiles and the first line of each config.

The site has the same as one table, with the arms of the studies.
"""

import ast
import re
from html import escape
from pathlib import Path, PurePosixPath

import yaml

from mmlape.engine.study_file import read_study

ROOT = Path(__file__).resolve().parents[1]
TASKS = dict(detection='detection', segmentation='segmentation', classification='classification', lit='text tuning')
HEAD = """# Configs

Made by `python docs/catalogue.py` from the metafiles. Parameters and FLOPs are exact; FLOPs are for one image of the
config's size, a multiply-add is one (`mmlape model-cost CONFIG`). The figures are the papers'; mIoU ms is of images at
several scales and flipped, which these configs do not test. We have trained none of these but the small models of
Fashion-MNIST, whose results are in [docs/results](../docs/results). Grids of ablations are [studies](../studies).
"""


def what(config: Path) -> str:
    """Return the model of a config, by its first line, without expectation and provenance."""
    line = ast.get_docstring(ast.parse(config.read_text())).splitlines()[0]
    return re.split(r'[;.:] (?:Expect|not run|Not run|for the|for a|The papers?)\b|, (?:about|some) ', line)[0].rstrip(
        '.'
    )


def figures(model: dict) -> str:
    """Return '45.6 box AP, 40.7 mask AP (LaPE)' for each paper."""
    quoted = []
    for result in model.get('Paper Results', []):
        values = ', '.join(f'{value} {metric}' for metric, value in result['Metrics'].items())
        after = f' after {result["Epoch"]} epochs' if 'Epoch' in result else ''
        star = r'\*' if 'Note' in result else ''
        quoted.append(f'{values}{star}{after} ({result["Paper"].partition(" (")[0]})')
    return '; '.join(quoted)


def section(metafile: Path) -> str:
    """Return the heading, table and notes of a folder."""
    folder = metafile.parent
    name = folder.relative_to(ROOT / 'configs').as_posix()
    lines = [f'## {name}', '', f'How they are trained: [{name}]({name}/README.md).', '']
    lines += ['| config | model | parameters | GFLOPs | the papers |', '| --- | --- | --- | --- | --- |']
    # strings, so that figures keep their last zeros
    models = yaml.load(metafile.read_text(), yaml.BaseLoader)['Models']
    for model in models:
        path, facts = ROOT / model['Config'], model['Metadata']
        size = f'{int(facts["Parameters"]) / 1e6:.3f}M | {int(facts["FLOPs"]) / 1e9:.1f}'
        link = path.relative_to(ROOT / 'configs').as_posix()
        lines.append(f'| [{model["Name"]}]({link}) | {what(path)} | {size} | {figures(model)} |')
    notes = dict.fromkeys(one['Note'] for model in models for one in model.get('Paper Results', []) if 'Note' in one)
    return '\n'.join([*lines, *(f'\n\\* {note}' for note in notes)]) + '\n'


def catalogue() -> str:
    """Return the text of configs/README.md."""
    index = yaml.safe_load((ROOT / 'model-index.yml').read_text())['Import']
    return '\n'.join([HEAD, *(section(ROOT / file) for file in index)])


def table() -> str:
    """Return every config and every arm of a study as one table of the site, which `catalogue.js` filters."""
    rows, known = [], {}
    for metafile in yaml.safe_load((ROOT / 'model-index.yml').read_text())['Import']:
        for model in yaml.load((ROOT / metafile).read_text(), yaml.BaseLoader)['Models']:
            path, name = PurePosixPath(model['Config']), model['Name']
            known[str(path.with_suffix('')).removeprefix('configs/')] = model
            size = f'{int(model["Metadata"]["Parameters"]) / 1e6:.1f}M'
            joining = 'lape' if 'lape' in re.split('[-_]', name) else 'default'
            facts = (TASKS[path.parts[1]], model['In Collection'], joining, name.rpartition('_')[2], size)
            rows.append((str(path), name, what(ROOT / path), *facts, figures(model).replace('\\', '')))
    for file in sorted((ROOT / 'studies').glob('*.yml')):
        study = read_study(file)
        for arm in study.arms:
            base = arm.base.removeprefix('mmlape::')
            joining = _joining(arm.overrides) or ('lape' if 'lape' in re.split('[-_]', base) else 'default')
            figure = arm.figure and f'{arm.figure} {study.metric}{" vs " + arm.relative_to if arm.relative_to else ""}'
            quoted = f'{figure} ({study.paper.partition(" (")[0]})' if figure else ''
            facts = (TASKS[base.partition('/')[0]], known[base]['In Collection'], joining, base.rpartition('_')[2], '')
            rows.append(
                (f'studies/{file.name}', f'{file.name}:{arm.name}', f'{study.title}: {arm.title}', *facts, quoted)
            )
    head = ('config or arm', 'what it is', 'task', 'model', 'joining', 'data', 'parameters', 'figures of the papers')
    lines = ['```{raw} html', '<div class="table-wrapper"><table class="docutils" id="catalogue"><thead><tr>']
    lines += [*(f'<th>{title}</th>' for title in head), '</tr></thead><tbody>']
    for link, name, *cells in rows:
        named = f'<a href="../../{link}"><code>{escape(name)}</code></a>'
        lines.append(f'<tr><td>{named}</td>' + ''.join(f'<td>{escape(cell)}</td>' for cell in cells) + '</tr>')
    return '\n'.join([*lines, '</tbody></table></div>', '```'])


def _joining(overrides: dict) -> str | None:
    backbone = overrides.get('model.backbone')
    nested = backbone.get('pe_joining') if isinstance(backbone, dict) else None
    return overrides.get('model.backbone.pe_joining') or nested


if __name__ == '__main__':
    (ROOT / 'configs' / 'README.md').write_text(catalogue())
