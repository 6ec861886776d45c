"""The folder of a graph: names of classes, sizes and normalisation, and examples without this package."""

import json
from pathlib import Path
from typing import Any

from mmlape.files import write_json, write_text
from mmlape.lab.engine.graphs import Graph

EXAMPLES = [Path(__file__).with_name(name) for name in ('example.py', 'example.cpp')]


def complete(path: Path) -> None:
    """Write ``labels.txt``, ``model.json``, ``example.py`` and ``example.cpp`` beside a graph.

    A backbone has no classes: it gets ``model.json`` alone.
    """
    graph = Graph(path)
    notes = graph.notes
    keys = [key for key in ('mean', 'std', 'overlap') if graph.task and key in notes]
    about: dict[str, Any] = {
        'file': path.name,
        'task': graph.task or 'backbone',
        'size': list(graph.size),
        'batch': graph.batch,
        'channels': graph.channels,
        'precision': notes.get('precision'),
        'input': notes.get('input', 'normalised'),
        **{key: json.loads(notes[key]) for key in keys},
        'outputs': {name: graph.shape(name) for name in graph.outputs},
    }
    write_json(path.with_name('model.json'), about)
    if graph.task:
        write_text(path.with_name('labels.txt'), ''.join(f'{one_line(name)}\n' for name in graph.classes))
        for example in EXAMPLES:
            write_text(path.with_name(example.name), example.read_text(encoding='utf-8'))


def one_line(name: str) -> str:
    """Return the name of a class without breaks, so that line N of a file is class N."""
    return ' '.join(name.split()) or '?'
