"""Write the tables of configs into the README of each folder, and configs/README.md, which lists the folders.

They are made from the metafiles and the first line of each config. The site has one table of all, with the arms of the
studies.
"""

import ast
import re
from html import escape
from pathlib import Path, PurePosixPath
from urllib.parse import urlencode

import yaml

from mmlape.lab.experiments.report.arms import paper_figures
from mmlape.lab.studies import read_study

ROOT = Path(__file__).resolve().parents[1]
TABLE = re.compile(r'(<!-- made from metafile\.yml by docs/catalogue\.py -->\n).*?(<!-- end -->\n)', re.DOTALL)
"""The table in configs/README.md and in a folder's."""


def what(config: Path) -> str:
    """Return the model of a config, by its first line, without expectation and provenance."""
    line = ast.get_docstring(ast.parse(config.read_text())).splitlines()[0]
    return re.split(r'[;.:] (?:Expect|not run|Not run|for the|for a|The papers?)\b|, (?:about|some) ', line)[0].rstrip(
        '.'
    )


def figures(results: list[dict]) -> str:
    """Return '45.6 box AP, 40.7 mask AP (LaPE)' for each paper."""
    quoted = []
    for result in results:
        values = ', '.join(f'{value} {metric}' for metric, value in result['Metrics'].items())
        after = f' after {result["Epoch"]} epochs' if 'Epoch' in result else ''
        star = r'\*' if 'Note' in result else ''
        quoted.append(f'{values}{star}{after} ({result["Paper"].partition(" (")[0]})')
    return '; '.join(quoted)


def metafiles() -> list[Path]:
    """Return the metafiles of model-index.yml."""
    return [ROOT / file for file in yaml.safe_load((ROOT / 'model-index.yml').read_text())['Import']]


def read(metafile: Path, section: str) -> list[dict]:
    """Return its 'Models' or 'Collections'; values are texts, so that figures keep their last zeros."""
    return yaml.load(metafile.read_text(), yaml.BaseLoader)[section]


def section(metafile: Path) -> str:
    """Return the table and notes of a folder."""
    lines = ['| config | parameters | GFLOPs | the papers, not run by us |', '| --- | --- | --- | --- |']
    models = read(metafile, 'Models')
    for model in models:
        path, facts = ROOT / model['Config'], model['Metadata']
        size = f'{int(facts["Parameters"]) / 1e6:.3f}M | {int(facts["FLOPs"]) / 1e9:.1f}'
        quoted = [result for result in model.get('Paper Results', []) if 'Epoch' not in result]
        lines.append(f'| [{model["Name"]}]({path.name}) | {size} | {figures(quoted)} |')
    fractions = {model['Name']: model['Paper Fractions']['Figures'] for model in models if 'Paper Fractions' in model}
    if fractions:
        shares = next(iter(fractions.values()))
        lines += ['', f'| on a fraction of the images | {" | ".join(shares)} |', f'| --- |{" --- |" * len(shares)}']
        lines += [f'| {name} | {" | ".join(of_shares.values())} |' for name, of_shares in fractions.items()]
    notes = dict.fromkeys(one['Note'] for model in models for one in model.get('Paper Results', []) if 'Note' in one)
    commands = '\n[Commands and weights](../running.md)'
    return '\n'.join([*lines, *(f'\n\\* {note}' for note in notes), commands]) + '\n'


def summary(metafile: Path) -> str:
    """Return the row of a folder in configs/README.md."""
    name, models = metafile.parent.name, read(metafile, 'Models')
    title = (metafile.parent / 'README.md').read_text().partition('\n')[0].removeprefix('# ')
    tasks = dict.fromkeys(one['Metadata']['Task'] for one in read(metafile, 'Collections'))
    return f'| [{name}]({name}/README.md) | {title} | {", ".join(tasks)} | {len(models)} |\n'


def folders() -> str:
    """Return the table of folders."""
    head = '| folder | what | task | configs |\n| --- | --- | --- | --- |\n'
    return head + ''.join(map(summary, metafiles()))


def pages() -> dict[Path, str]:
    """Return the text of configs/README.md and of each folder's README, with its table."""
    tables = {ROOT / 'configs' / 'README.md': folders()}
    tables |= {metafile.parent / 'README.md': section(metafile) for metafile in metafiles()}
    return {
        page: TABLE.sub(lambda match, made=made: match[1] + made + match[2], page.read_text())
        for page, made in tables.items()
    }


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
    rows, known, tasks = [], {}, {}
    for metafile in metafiles():
        tasks |= {one['Name']: one['Metadata']['Task'] for one in read(metafile, 'Collections')}
        for model in read(metafile, 'Models'):
            path, name = PurePosixPath(model['Config']), model['Name']
            known[name] = model
            size = f'{int(model["Metadata"]["Parameters"]) / 1e6:.1f}M'
            joining = 'lape' if 'lape' in re.split('[-_]', name) else 'default'
            facts = (tasks[model['In Collection']], model['In Collection'], joining, name.rpartition('_')[2], size)
            cells = [what(ROOT / path), *facts, figures(model.get('Paper Results', [])).replace('\\', '')]
            rows.append((str(path), name, [*map(escape, cells), '<br>'.join(arms_of.get(name, []))]))
    for study in studies:
        file = f'{study.name}.yml'
        for arm in study.arms:
            base = arm.base.removeprefix('mmlape::')
            joining = _joining(arm.overrides) or ('lape' if 'lape' in re.split('[-_]', base) else 'default')
            printed = ', '.join(f'{value} {metric}' for metric, value in paper_figures(arm).items())
            relative = f' vs {arm.relative_to}' if arm.relative_to else ''
            quoted = f'{printed}{relative} ({study.paper.partition(" (")[0]})' if printed else ''
            collection = known[_config_name(base)]['In Collection']
            facts = (tasks[collection], collection, joining, base.rpartition('_')[2], '')
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
    """Return the table of all studies, with paper and table and what each needs, as HTML; the links set the filter."""
    lines = ['```{raw} html', '<div class="table-wrapper"><table class="docutils"><thead><tr>']
    lines += [
        *(f'<th>{title}</th>' for title in ('study', 'what', 'whose figures', 'arms', 'data', 'processes a run'))
    ]
    lines.append('</tr></thead><tbody>')
    for study in (read_study(file) for file in sorted((ROOT / 'studies').glob('*.yml'))):
        link = f'<a href="../../studies/{study.name}.yml"><code>{study.name}.yml</code></a>'
        arms = _filter(f'{study.name}.yml:', str(len(study.arms)))
        source = escape(study.source) if study.paper else 'ours'
        cells = (link, escape(study.title), source, arms, study.data, ' or '.join(map(str, study.processes)))
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
    for page, text in pages().items():
        page.write_text(text)
