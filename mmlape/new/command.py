"""Look at a folder of data, choose model, sizes and length, check the data, and write the config."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from mmengine.config import Config

from mmlape.console.quiet import say
from mmlape.console.tables import print_table, text_table
from mmlape.console.terminal import clock
from mmlape.errors import ConfigError, DataError
from mmlape.files import write_text
from mmlape.lab.datasets.checks import full_check, print_report
from mmlape.lab.training.optim import quiet_logger
from mmlape.lab.training.smoke import smoke
from mmlape.new import boxes, class_folders, coco, label_maps
from mmlape.new.choices import GET_WEIGHTS, PATIENCE, Choices, choose_model, choose_recipe, choose_side, fit_time
from mmlape.new.class_names import Names
from mmlape.new.found_data import TASKS, Found, common_folder
from mmlape.new.listing import Listing, find_unread, list_files
from mmlape.new.writing import choose_head, config_text

FORMS = (
    'images with label maps (of the same name, in one folder or two; ids, 0 and 255, or colours)',
    "boxes or masks in COCO's form (a JSON file, and its images)",
    "YOLO's form (data.yaml, or images and .txt files)",
    "Pascal VOC's form (XML files)",
    "LabelMe's form (a JSON file for each image)",
    'a folder of images for each class',
)
"""What is recognised, for the message about what is not."""
UNFINISHED = '.unfinished'
"""A file in the folder of a config that is not written yet."""
BOXES = (coco.recognise, boxes.recognise_yolo, boxes.recognise_voc, boxes.recognise_labelme)


def look(data: Path, task: str | None = None, names: Sequence[str] = (), background: bool | None = None) -> Found:
    """Return what a folder or a file of data holds.

    Args:
        data: The folder, a JSON file in COCO's form, or a ``data.yaml`` of YOLO.
        task: Of ``TASKS``, where a folder has data for several.
        names: Of classes, by numbers or colours, as `Names.parse` reads them.
        background: Whether 0 of label maps is a class that has no name.

    Raises:
        DataError: It is none of ``FORMS`` or several, or something that looks like annotations cannot be read.
    """
    by_value = Names.parse(names)
    listing = list_files(data if data.is_dir() or not data.exists() else data.parent)
    if data.is_file() and data.suffix.lower() not in ('.json', '.yaml', '.yml'):
        raise DataError(f"{data} is no JSON in COCO's form and no data.yaml: give the folder of your data")
    try:
        readings = _readings(data, listing, task, by_value, background)
    except DataError as error:
        raise DataError(f'{error}; correct what looks like annotations, or move it out of the data') from error
    chosen = [reading for reading in readings if reading.samples]
    asked = listing
    if chosen:  # of a form that is read, JSON about the images that it does not annotate
        taken = {name for reading in chosen for sample in reading.samples for name in (sample.image, sample.file)}
        files = {*listing.images, *listing.of_suffix('.json')} - taken
        asked = Listing(listing.root, tuple(file for file in listing.files if file in files))
    if task != 'classes' and data.is_dir() and (unread := find_unread(asked)):
        raise DataError(
            f'{unread}, and is in no form that is read: export COCO, YOLO, Pascal VOC or LabelMe, or move it out of '
            'the data; --task classes takes the names of folders alone'
        )
    if not chosen and task in (None, 'classes') and data.is_dir() and listing.images:
        chosen = [reading for reading in [class_folders.recognise(listing)] if reading.samples]
    if not chosen:
        seen, kind = listing.summary() + ', and no images' * (not listing.images), f' for --task {task}' * bool(task)
        raise DataError(f'{data} has {seen}: nothing known{kind}. What is: {"; ".join(FORMS)}')
    if len(chosen) > 1:
        read = ' and '.join(f'{one.form} ({len(one.samples)} images)' for one in chosen)
        tasks = dict.fromkeys('boxes' if one.task == 'masks' else one.task for one in chosen)
        fix = ' or '.join(f'--task {one}' for one in tasks) if len(tasks) > 1 else 'a folder or a file of one form'
        raise DataError(f'{data} has {read}: give {fix}')
    (found,) = chosen
    if found.ambiguous and task != 'masks':
        raise DataError(f'{data}: {found.ambiguous}')
    if by_value and found.is_named:
        raise DataError(f'--classes: {data} has names of its classes ({found.form})')
    if task == 'boxes':
        found.task = 'boxes'
    found.settle(chosen=data.suffix.lower() == '.json' and data.is_file())
    if task not in (None, found.task):
        raise DataError(f'--task {task}: the data have {TASKS[found.task]} ({found.form})')
    return found


def _readings(data: Path, listing: Listing, task: str | None, names: Names, background: bool | None) -> list[Found]:
    """Return the readings of a folder or a file for a task; those of classes are for what has no annotations."""
    if data.is_file():
        if not listing.images:  # beside the folder of the annotations
            listing = list_files(Path(os.path.relpath(data.absolute().parent.parent)))
        file = os.path.relpath(data, listing.root)
    if data.is_file() and data.suffix.lower() == '.json':
        others = {*listing.of_suffix('.json')} - {file}
        listing = Listing(listing.root, tuple(one for one in listing.files if one not in others))
        return [coco.recognise(listing, names)]
    if data.is_file():
        return [boxes.recognise_yolo(listing, names, file)]
    readings: list[Found] = []
    if task in (None, 'boxes', 'masks'):
        readings += [recognise(listing, names) for recognise in BOXES]
    if task in (None, 'segmentation'):
        readings.append(label_maps.recognise(listing, names, background))
    return readings


def write_config(
    data: Path,
    out: Path,
    command: str,
    task: str | None = None,
    names: Sequence[str] = (),
    background: bool | None = None,
    model: str | None = None,
    weights: str | None = None,
    seconds: float | None = None,
    iterations: int | None = None,
    patience: int = PATIENCE,
    balance: bool = False,
    seed: int = 0,
    split: str = 'clips',
    head: str | None = None,
    fine_tune: bool = False,
) -> Path:
    """Look at data, check them, and write a config that trains on them; print what was found and chosen.

    Lists, and what had to be converted, go to a folder beside the config. Nothing stays if the data
    have errors.

    Args:
        data: A folder or a file, see `look`.
        out: The config.
        command: What its first lines name.
        task: See `look`.
        names: See `look`.
        background: See `look`.
        model: See `mmlape.new.choices.choose_model`.
        weights: See there.
        seconds: How long the run may take here, which a trial of it decides.
        iterations: The length instead.
        patience: Validations without a better value that end a run; 0 for none.
        balance: Whether rare classes count more.
        seed: Of the split, where the data have none.
        split: There: 'clips', which keeps frames of one video together, or 'random'.
        head: See `mmlape.new.writing.choose_head`.
        fine_tune: See `mmlape.new.choices.choose_model`.

    Raises:
        DataError: The data are not known, or have errors.
        ConfigError: For a model that does not fit, or a file that exists.
    """
    beside = out.with_name(f'{out.stem}_data')
    unfinished = beside / UNFINISHED
    if unfinished.exists():  # of a command that was killed
        shutil.rmtree(beside)
    for path in (out, beside):
        if path.exists():
            raise ConfigError(f'{path} exists: remove it, or give another --out')
    with quiet_logger():
        found = look(data, task, names, background)
        over = choose_head(found.task, found.images()['train'], head)
        chosen = choose_model(found.task, model, weights, over, fine_tune)
        side = choose_side(found.task, found.sizes(), chosen.from_scratch)
        tiling = found.tiling(side)
        found.divide(tiling, seed, split == 'random')
        recipe = choose_recipe(found, side, tiling, chosen.from_scratch, iterations, patience, balance)
    _print_found(found, recipe)
    beside.mkdir(parents=True)
    unfinished.touch()
    try:
        datasets = found.prepare(beside)

        def text(recipe: Choices) -> str:
            return config_text(found, datasets, chosen, recipe, command, str(out))

        cfg = Config.fromstring(text(recipe), '.py')
        with quiet_logger():
            report = full_check(cfg, ('train', 'val'))
        if report.issues:
            print_report(report)
        if report.errors:
            first = report.errors[0]
            raise DataError(f'{first.split} data: {first}; the data have to be corrected first')
        if seconds is not None:
            say('trying two iterations and a validation')
            # the log of a run would hide what was found: of its own logger, and of the one before it
            cfg.log_level = 'ERROR'
            with quiet_logger():
                facts = smoke(cfg, out.parent)
            recipe = fit_time(recipe, seconds, facts)
        write_text(out, text(recipe))
        unfinished.unlink()
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    if not any(beside.iterdir()):
        beside.rmdir()
    say(f'model: {chosen.note}')
    if found.task == 'segmentation' and chosen.head == 'linear':
        say('for many images, or fine outlines: --head adapter')
        if not fine_tune:
            say('slower, and better in our tests: --fine-tune')
    if chosen.from_scratch and model is None:
        say(f'no weights of a foundation ViT are at hand; {GET_WEIGHTS}')
    say(
        f'recipe: {"windows" if tiling else "images"} of {recipe.side} pixels, {recipe.batch} at a time, '
        f'{recipe.iterations} iterations, a validation every {recipe.interval}'
        + (f', stopped after {recipe.patience} without a better one' if recipe.patience else '')
    )
    if seconds is not None:
        say(f'an iteration takes {facts["seconds_per_iter"]:.3g} s here: about {clock(seconds)} in all')
    _print_next(found, out)
    return out


def _print_found(found: Found, recipe: Choices) -> None:
    say(f'found: {TASKS[found.task]}, {found.form}')
    header = ('', 'found', 'training', 'validation', 'left out', 'why')
    rows = []
    for book in found.books():
        used = str(book.used['train']), str(book.used['val'])
        why = ', '.join(f'{reason}: {count}' for reason, count in book.left_out.items() if count)
        rows.append((book.what, str(book.total), *used, str(book.left_out.total()), why))
    print_table(text_table(header, rows))
    for note in found.remarks():
        say(f'note: {note}')
    if recipe.tiling:
        for line in found.told(recipe.tiling):
            say(line)
    classes, keyed = list(found.rows()), isinstance(found, label_maps.LabelMaps)
    total = max(sum(count for _, _, count in classes), 1)
    what = dict(segmentation='pixels', classes='images').get(found.task, 'objects')
    header = (*(('value',) if keyed else ()), 'class', what, 'share', *(('weight',) if recipe.weights else ()))
    lines = []
    for place, (key, name, count) in enumerate(classes):
        weight = (f'{recipe.weights[place]:.2f}' if place < len(found.classes) else '',) if recipe.weights else ()
        lines.append((*((key,) if keyed else ()), name, str(count), f'{count / total:.1%}', *weight))
    print_table(text_table(header, lines))


def _print_next(found: Found, out: Path) -> None:
    """Print the next commands."""
    run = Path('work_dirs') / out.stem
    images = found.listing.root / common_folder([sample.image for sample in found.of_split['train']])
    say(f'wrote {out}; next:')
    for line in (
        f'mmlape train {out}',
        f'mmlape test {run}',
        f'mmlape predict {run} {images}',
        f'mmlape export-onnx {run}',
    ):
        say(f'  {line}')
