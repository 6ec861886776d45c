#!/usr/bin/env python
"""Write Croissant metadata of mini data: `python docs/croissant.py data/mini` writes `data/mini/croissant.json`.

Croissant (MLCommons) is the form in which hubs and catalogues of datasets read what a dataset is. This needs the
package mlcroissant, in an environment of its own (`pip install mlcroissant`), and nothing of mmlape. Files of the data
have to lie where `mmlape make-mini-data` has written them.
"""

import hashlib
import json
import sys
from pathlib import Path

import mlcroissant as mlc

IMAGES = {
    'coco-images': ('coco/*2017/*.jpg', 'image/jpeg', 'Scenes in the layout of COCO'),
    'ade-images': ('ade/images/*/*.jpg', 'image/jpeg', 'Scenes in the layout of ADE20K'),
    'ade-maps': ('ade/annotations/*/*.png', 'image/png', 'Label maps of these: 1 is the first of classes.txt'),
    'digits': ('digits/*/*/*.png', 'image/png', 'Crops of one digit, in a folder for each class'),
}
"""Sets of files: where they are, their kind, what they are."""
ANNOTATIONS = {name: f'coco/annotations/instances_{name}2017.json' for name in ('train', 'val')}
FIELDS = {
    'id': mlc.DataType.INTEGER,
    'image_id': mlc.DataType.INTEGER,
    'category_id': mlc.DataType.INTEGER,
    'area': mlc.DataType.FLOAT,
    'iscrowd': mlc.DataType.INTEGER,
}
"""Of an annotation in COCO's form."""


def describe(root: Path) -> mlc.Metadata:
    """Return the metadata of a folder that `mmlape make-mini-data` has written."""
    made = json.loads((root / 'mini_data.json').read_text(encoding='utf-8'))
    credits = '; '.join(f'{name}: {credit}' for name, credit in made['credits'].items())
    return mlc.Metadata(
        name='mmlape-mini-data',
        description='Scanned handwritten digits on photographs, with boxes, masks, label maps and classes. Made by '
        f'`mmlape make-mini-data`, seed {made["options"]["seed"]}: the same options give the same bytes.',
        url='https://pypi.org/project/mmlape/',
        license=[f'https://creativecommons.org/licenses/by/{version}/' for version in ('4.0', '2.0')],
        cite_as=credits,
        version=made['version'],
        distribution=[*_annotation_files(root), *_image_sets(root)],
        record_sets=[*map(_annotations, ANNOTATIONS), *(_files(name) for name in IMAGES if _found(root, name))],
    )


def _found(root: Path, name: str) -> bool:
    return next(root.glob(IMAGES[name][0]), None) is not None


def _annotation_files(root: Path) -> list[mlc.FileObject]:
    return [
        mlc.FileObject(
            id=f'instances-{name}',
            name=f'instances-{name}',
            content_url=path,
            encoding_formats=['application/json'],
            sha256=hashlib.sha256((root / path).read_bytes()).hexdigest(),
        )
        for name, path in ANNOTATIONS.items()
    ]


def _image_sets(root: Path) -> list[mlc.FileSet]:
    return [
        mlc.FileSet(id=name, name=name, description=what, includes=[pattern], encoding_formats=[kind])
        for name, (pattern, kind, what) in IMAGES.items()
        if _found(root, name)
    ]


def _annotations(split: str) -> mlc.RecordSet:
    name = f'annotations-{split}'
    fields = [
        mlc.Field(
            id=f'{name}/{field}',
            name=field,
            data_types=kind,
            source=mlc.Source(
                file_object=f'instances-{split}', extract=mlc.Extract(json_path=f'$.annotations[*].{field}')
            ),
        )
        for field, kind in FIELDS.items()
    ]
    return mlc.RecordSet(id=name, name=name, fields=fields)


def _files(name: str) -> mlc.RecordSet:
    parts = {
        'path': (mlc.DataType.TEXT, mlc.FileProperty.fullpath),
        'image': (mlc.DataType.IMAGE_OBJECT, mlc.FileProperty.content),
    }
    fields = [
        mlc.Field(
            id=f'{name}-files/{field}',
            name=field,
            data_types=kind,
            source=mlc.Source(file_set=name, extract=mlc.Extract(file_property=part)),
        )
        for field, (kind, part) in parts.items()
    ]
    return mlc.RecordSet(id=f'{name}-files', name=f'{name}-files', fields=fields)


if __name__ == '__main__':
    root = Path(sys.argv[1])
    metadata = describe(root)
    if metadata.issues.errors:
        sys.exit('\n'.join(sorted(metadata.issues.errors)))
    content = json.dumps(metadata.to_json(), indent=2, default=str) + '\n'
    (root / 'croissant.json').write_text(content, encoding='utf-8')
    print(f'wrote {root / "croissant.json"}')
