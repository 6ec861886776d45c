"""Look at a folder of data, choose model, sizes and length, check the data, and write the config."""

import shutil
from pathlib import Path

from mmengine.config import Config

from mmlape.console import clock, console
from mmlape.errors import ConfigError, DataError
from mmlape.files import write_text
from mmlape.lab.datasets.checks import full_check, print_report
from mmlape.lab.engine.optim import quiet_logger
from mmlape.lab.engine.smoke import smoke
from mmlape.new import boxes, class_folders, coco, label_maps, labelme
from mmlape.new.found import TASKS, Found
from mmlape.new.listing import list_files
from mmlape.new.recipe import (
    GET_WEIGHTS,
    PATIENCE,
    Recipe,
    choose_head,
    choose_model,
    choose_recipe,
    choose_side,
    iterations_for,
)
from mmlape.new.writing import config_text
from mmlape.quiet import say
from mmlape.tables import console_table, text_table

FORMS = (
    'images with label maps (of the same name, in one folder or two; ids, 0 and 255, or colours)',
    "boxes or masks in COCO's form (a JSON file, and its images)",
    "YOLO's form (data.yaml, or images and .txt files)",
    "Pascal VOC's form (XML files)",
    "LabelMe's form (a JSON file for each image)",
    'a folder of images for each class',
)
"""What is recognised, for the message about what is not."""
BOXES = (coco.recognise, boxes.recognise_yolo, boxes.recognise_voc, labelme.recognise)


def look(data: Path, task: str | None = None, names: tuple[str, ...] = (), background: bool | None = None) -> Found:
    """Return what a folder or a file of data holds.

    Args:
        data: The folder, a JSON file in COCO's form, or a ``data.yaml`` of YOLO.
        task: Of ``TASKS``, where a folder has data for several.
        names: Of the classes of label maps.
        background: Whether id 0 of label maps is a class.

    Raises:
        DataError: It is none of ``FORMS``; the message says what it is.
    """
    if data.is_file():
        if data.suffix.lower() == '.json':
            return _as(coco.recognise_file(data), task)
        if data.suffix.lower() in ('.yaml', '.yml'):
            return _as(boxes.recognise_description(data), task)
        raise DataError(f"{data} is no JSON in COCO's form and no data.yaml: give the folder of your data")
    listing = list_files(data)
    if not listing.images and not listing.of_suffix('.json', '.yaml', '.yml'):
        raise _unknown(data, f'{listing.summary()}, and no images')
    wanted = None if task is None else {task}
    if wanted is None or wanted & {'boxes', 'masks'}:
        for recognise in BOXES:
            found = recognise(listing)
            if found is not None:
                return _as(found, task)
    if wanted is None or 'segmentation' in wanted:
        maps = label_maps.recognise(listing, names, background)
        if maps is not None:
            return maps
    if wanted is None or 'classes' in wanted:
        folders = class_folders.recognise(listing)
        if folders is not None:
            return folders
    raise _unknown(data, listing.summary(), task)


def _as(found: Found, task: str | None) -> Found:
    """Return data of boxes and masks as those of boxes alone, if these are asked for."""
    if task is None or task == found.task:
        return found
    if (found.task, task) == ('masks', 'boxes'):
        found.task = 'boxes'
        return found
    raise DataError(f'--task {task}: the data have {TASKS[found.task]} ({found.form})')


def _unknown(data: Path, seen: str, task: str | None = None) -> DataError:
    kind = f' for --task {task}' if task else ''
    return DataError(f'{data} has {seen}: nothing known{kind}. What is: {"; ".join(FORMS)}')


def write_config(
    data: Path,
    out: Path,
    command: str,
    task: str | None = None,
    names: tuple[str, ...] = (),
    background: bool | None = None,
    model: str | None = None,
    weights: str | None = None,
    seconds: float | None = None,
    iterations: int | None = None,
    patience: int = PATIENCE,
    balance: bool = False,
    seed: int = 0,
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
        model: See `mmlape.new.recipe.choose_model`.
        weights: See there.
        seconds: How long the run may take here, which a trial of it decides.
        iterations: The length instead.
        patience: Validations without a better value that end a run; 0 for none.
        balance: Whether rare classes count more.
        seed: Of the split, where the data have none.
        head: Over a frozen ViT for segmentation, 'linear' or 'adapter'; by default by the number of
            images.
        fine_tune: See `mmlape.new.recipe.choose_model`.

    Raises:
        DataError: The data are not known, or have errors.
        ConfigError: For a model that does not fit, or a file that exists.
    """
    beside = out.with_name(f'{out.stem}_data')
    for path in (out, beside):
        if path.exists():
            raise ConfigError(f'{path} exists: remove it, or give another --out')
    with quiet_logger():
        found = look(data, task, names, background)
        guess = choose_side(found.task, found.sizes, model in (None, 'mini'))
        head = head or choose_head(found.task, found.images()['train'])
        chosen = choose_model(found.task, model, weights, guess, head, fine_tune)
        side = choose_side(found.task, found.sizes, chosen.from_scratch)
        if side != guess:
            chosen = choose_model(found.task, model, weights, side, head, fine_tune)
        recipe = choose_recipe(found, side, chosen.from_scratch, iterations, patience, balance)
    _print_found(found, recipe)
    beside.mkdir(parents=True)
    try:
        datasets = found.prepare(beside, seed)

        def text(recipe: Recipe) -> str:
            return config_text(found, datasets, chosen, recipe, command, str(out))

        cfg = Config.fromstring(text(recipe), '.py')
        with quiet_logger():
            report = full_check(cfg, ('train', 'val'))
        if report.issues:
            print_report(report)
        if report.issues.errors:
            first = report.issues.errors[0]
            raise DataError(f'{first.split} data: {first}; the data have to be corrected first')
        if seconds is not None:
            say('trying two iterations and a validation')
            # the log of a run would hide what was found: of its own logger, and of the one before it
            cfg.log_level = 'ERROR'
            with quiet_logger():
                facts = smoke(cfg, out.parent)
            recipe = recipe.with_length(iterations_for(seconds, facts, recipe))
        write_text(out, text(recipe))
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    if not any(beside.iterdir()):
        beside.rmdir()
    say(f'model: {chosen.note}')
    if found.task == 'segmentation' and not chosen.has_adapter:
        say('for many images, or fine outlines: --head adapter')
        if not fine_tune:
            say('slower, and better in our tests: --fine-tune')
    if chosen.from_scratch and model is None:
        say(f'no weights of a foundation ViT are at hand; {GET_WEIGHTS}')
    say(
        f'recipe: images of {recipe.side} pixels, {recipe.batch} at a time, {recipe.iterations} '
        f'iterations, a validation every {recipe.interval}'
        + (f', stopped after {recipe.patience} without a better one' if recipe.patience else '')
    )
    if seconds is not None:
        say(f'an iteration takes {facts["seconds_per_iter"]:.3g} s here: about {clock(seconds)} in all')
    _print_next(found, out)
    return out


def _print_found(found: Found, recipe: Recipe) -> None:
    counts = found.images()
    split = (
        f'{counts["train"]} for training, {counts["val"]} for validation'
        if 'val' in counts
        else f'{counts["train"]}, a fifth of which is for validation'
    )
    say(f'found: {TASKS[found.task]}, {found.form}; images: {split}')
    for note in found.notes:
        say(f'note: {note}')
    total = max(sum(found.counts.values()), 1)
    what = dict(segmentation='pixels', classes='images').get(found.task, 'objects')
    rows = []
    for place, name in enumerate(found.classes):
        weight = (f'{recipe.weights[place]:.2f}',) if recipe.weights else ()
        rows.append((name, str(found.counts[name]), f'{found.counts[name] / total:.1%}', *weight))
    header = ('class', what, 'share', *(('weight',) if recipe.weights else ()))
    console().print(console_table(text_table(header, rows)))


def _print_next(found: Found, out: Path) -> None:
    """Print the next commands."""
    run = Path('work_dirs') / out.stem
    say(f'wrote {out}; next:')
    for line in (
        f'mmlape train {out}',
        f'mmlape test {run}',
        f'mmlape predict {run} {found.image_folder}',
        f'mmlape export-onnx {run}',
    ):
        say(f'  {line}')
