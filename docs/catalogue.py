"""Write configs/README.md, the catalogue, from the metafiles and the first line of each config.

The site has the same as one table, with the arms of the studies.
"""

import ast
import re
from html import escape
from pathlib import Path, PurePosixPath
from urllib.parse import urlencode

import yaml

from mmlape.lab.experiments.report.paper import paper_figures
from mmlape.lab.studies.study_file import read_study

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
    """Return every config and every arm of a study as one table of the site, which `catalogue.js` filters.

    A config links the arms that are this config, an arm its paper's table and its base; the links set the filter.
    """
    studies = [read_study(file) for file in sorted((ROOT / 'studies').glob('*.yml'))]
    arms_of: dict[str, list[str]] = {}
    for study in studies:
        for arm in study.arms:
            if not arm.overrides and not arm.variables:
                arms_of.setdefault(_config_name(arm.base), []).append(_filter(f'{study.name}.yml:{arm.name}'))
    rows, known = [], {}
    for metafile in yaml.safe_load((ROOT / 'model-index.yml').read_text())['Import']:
        for model in yaml.load((ROOT / metafile).read_text(), yaml.BaseLoader)['Models']:
            path, name = PurePosixPath(model['Config']), model['Name']
            known[name] = model
            size = f'{int(model["Metadata"]["Parameters"]) / 1e6:.1f}M'
            joining = 'lape' if 'lape' in re.split('[-_]', name) else 'default'
            facts = (TASKS[path.parts[1]], model['In Collection'], joining, name.rpartition('_')[2], size)
            cells = [what(ROOT / path), *facts, figures(model).replace('\\', '')]
            rows.append((str(path), name, [*map(escape, cells), '<br>'.join(arms_of.get(name, []))]))
    for study in studies:
        file = f'{study.name}.yml'
        for arm in study.arms:
            base = arm.base.removeprefix('mmlape::')
            joining = _joining(arm.overrides) or ('lape' if 'lape' in re.split('[-_]', base) else 'default')
            printed = ', '.join(f'{value} {metric}' for metric, value in paper_figures(study, arm).items())
            relative = f' vs {arm.relative_to}' if arm.relative_to else ''
            quoted = f'{printed}{relative} ({study.paper.partition(" (")[0]})' if printed else ''
            collection = known[_config_name(base)]['In Collection']
            facts = (TASKS[base.partition('/')[0]], collection, joining, base.rpartition('_')[2], '')
            cells = [f'{study.title}: {arm.title}', *facts, quoted]
            see = [_filter(file, study.source)] if study.paper else []
            see.append(_filter(_config_name(base)))
            rows.append((f'studies/{file}', f'{file}:{arm.name}', [*map(escape, cells), '<br>'.join(see)]))
    head = ('config or arm', 'what it is', 'task', 'model', 'joining', 'data', 'parameters', 'figures of the papers')
    lines = ['```{raw} html', '<div class="table-wrapper"><table class="docutils" id="catalogue"><thead><tr>']
    lines += [*(f'<th>{title}</th>' for title in (*head, 'see also')), '</tr></thead><tbody>']
    for link, name, cells in rows:
        named = f'<a href="../../{link}"><code>{escape(name)}</code></a>'
        lines.append(f'<tr><td>{named}</td>' + ''.join(f'<td>{cell}</td>' for cell in cells) + '</tr>')
    return '\n'.join([*lines, '</tbody></table></div>', '```'])


def papers() -> str:
    """Return the tables of papers that are studies, with what each needs, as HTML; the links set the filter."""
    lines = ['```{raw} html', '<div class="table-wrapper"><table class="docutils"><thead><tr>']
    lines += [*(f'<th>{title}</th>' for title in ('paper and table', 'study', 'arms', 'data', 'processes a run'))]
    lines.append('</tr></thead><tbody>')
    for study in (read_study(file) for file in sorted((ROOT / 'studies').glob('*.yml'))):
        if study.paper:
            link = f'<a href="../../studies/{study.name}.yml"><code>{study.name}.yml</code></a>'
            arms = _filter(f'{study.name}.yml:', str(len(study.arms)))
            cells = (escape(study.source), link, arms, study.data, ' or '.join(map(str, study.processes)))
            lines.append('<tr>' + ''.join(f'<td>{cell}</td>' for cell in cells) + '</tr>')
    return '\n'.join([*lines, '</tbody></table></div>', '```'])


def _config_name(base: str) -> str:
    return PurePosixPath(base.removeprefix('mmlape::')).name


def _filter(words: str, text: str = '') -> str:
    """Return a link that filters the catalogue by words."""
    return f'<a href="#{urlencode({"words": words})}">{escape(text or words)}</a>'


def _joining(overrides: dict) -> str | None:
    backbone = overrides.get('model.backbone')
    nested = backbone.get('pe_joining') if isinstance(backbone, dict) else None
    return overrides.get('model.backbone.pe_joining') or nested


if __name__ == '__main__':
    (ROOT / 'configs' / 'README.md').write_text(catalogue())
