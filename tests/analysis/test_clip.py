"""A video in, a video and a line a frame out: as single images, also after a kill."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
import tiny
import torch
from mmengine.logging import MMLogger
from test_prediction_rules import Finder

from mmlape.cli import main
from mmlape.errors import DataError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.inference.predicted_files import is_clip, predict_clip
from mmlape.lab.inference.prediction import Model, init_model

FRAMES = 30


@pytest.fixture(scope='module')
def clip(tmp_path_factory):
    """A bright and a dark square that move over grey, whose name says nothing."""
    path = tmp_path_factory.mktemp('clip') / 'clip.mp4'
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*'mp4v'), 10, (96, 64))
    for number in range(FRAMES):
        frame = np.full((64, 96, 3), 120, np.uint8)
        frame[8:24, 2 * number : 2 * number + 20] = 255
        frame[40:60, 70 - 2 * number : 90 - 2 * number] = 0
        writer.write(frame)
    writer.release()
    return path.rename(path.with_name('recorded'))


def frames_of(path):
    capture = cv2.VideoCapture(str(path))
    while (read := capture.read())[0]:
        yield np.ascontiguousarray(read[1][..., ::-1])


def rows_of(out):
    return [json.loads(line) for line in (out / 'predictions.jsonl').read_text().splitlines()]


@pytest.mark.parametrize('tile', [None, 48])
@pytest.mark.parametrize('batch_size', [1, 4])
def test_the_objects_of_frames_are_those_of_images(clip, tmp_path, tile, batch_size):
    model = Model(Finder())
    assert predict_clip(model, clip, tmp_path, tile=tile, batch_size=batch_size) == FRAMES
    for number, (row, frame) in enumerate(zip(rows_of(tmp_path), frames_of(clip), strict=True)):
        (image,) = model.predict(frame, tile=tile)
        found = image.sample.pred_instances
        assert (row['frame'], row['seconds']) == (number, number / 10)
        assert [one['class'] for one in row['objects']] == [model.classes[label] for label in found.labels]
        corners = [[x, y, x + width, y + height] for x, y, width, height in (one['bbox'] for one in row['objects'])]
        assert corners == found.bboxes.tolist() and len(corners) >= 2
    drawn = list(frames_of(tmp_path / 'overlays' / 'recorded.mp4'))
    assert len(drawn) == FRAMES and drawn[0].shape[1] == 96 and drawn[0].shape[0] > 64
    with pytest.raises(DataError, match='has files already'):
        predict_clip(model, clip, tmp_path, tile=tile)


def test_what_is_no_video_is_told_and_a_damaged_one_is_not_silently_short(clip, tmp_path, caplog):
    """FFmpeg takes a list of images for a video of its text."""
    MMLogger.get_current_instance().addHandler(caplog.handler)
    listed, damaged = tmp_path / 'val.txt', tmp_path / 'damaged'
    listed.write_text('images/1.png\n' * 100)
    for path in (listed, Path(__file__)):
        with pytest.raises(DataError, match='is neither an image nor a video'):
            is_clip(path)
    content = clip.read_bytes()
    start, end = content.index(b'mdat') + 4, content.rindex(b'moov') - 4
    for kept, message in ((0, 'no frame of this video can be read'), ((end - start) // 2, None)):
        damaged.write_bytes(content[: start + kept] + bytes(end - start - kept) + content[end:])
        assert is_clip(damaged)
        if message:
            with pytest.raises(DataError, match=message):
                predict_clip(Model(Finder()), damaged, tmp_path / 'none')
        else:
            assert 0 < predict_clip(Model(Finder()), damaged, tmp_path / 'half') < FRAMES
            assert f'of {FRAMES} that the file says it has' in caplog.text


def test_frames_that_come_at_any_rate_are_written(tmp_path):
    """MPEG-4 has fractions of a second of 16 bits alone; a slow motion has a mean rate."""
    writer = cv2.VideoWriter(str(tmp_path / 'slow.avi'), cv2.VideoWriter_fourcc(*'MJPG'), 119.9312, (96, 64))
    for _ in range(3):
        writer.write(np.full((64, 96, 3), 120, np.uint8))
    writer.release()
    assert predict_clip(Model(Finder()), tmp_path / 'slow.avi', tmp_path / 'out') == 3
    assert len(list(frames_of(tmp_path / 'out' / 'overlays' / 'slow.mp4'))) == 3


def test_a_killed_command_resumes(clip, tmp_path):
    """Its lines are those of one that was not killed; frames with a line are not predicted again."""
    config = tiny.write_config(tmp_path, tiny.write_data(tmp_path / 'data'))
    model = init_model(load_config(config), None, 'cpu')
    content = dict(state_dict=model.state_dict(), meta=dict(dataset_meta=dict(classes=model.classes)))
    torch.save(content, tmp_path / 'model.pth')
    words = ['predict', config, tmp_path / 'model.pth', clip, '--device', 'cpu', '--no-labels', '--out']
    words = [str(word) for word in words]
    assert main([*words, str(tmp_path / 'complete')]) == 0
    lines = tmp_path / 'killed' / 'predictions.jsonl'
    process = subprocess.Popen([sys.executable, '-m', 'mmlape', *words, lines.parent], stdout=subprocess.DEVNULL)
    while process.poll() is None and not (lines.is_file() and lines.read_bytes().count(b'\n') > 3):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = rows_of(lines.parent)[:3] if process.returncode else []
    assert kept, 'the process was killed'
    kept[2]['mine'] = True
    lines.write_text('\n'.join([*map(json.dumps, kept), '{"frame": 3, "cl']))
    assert main([*words, str(lines.parent), '--tile', '32']) == 1, 'other tiles'
    assert main([*words, str(lines.parent)]) == 0
    found, expected = rows_of(lines.parent), rows_of(tmp_path / 'complete')
    assert found.pop(2) == dict(expected.pop(2), mine=True) and found == expected and len(found) == FRAMES - 1
    (video,) = (lines.parent / 'overlays').iterdir()
    drawn = list(frames_of(video))
    assert len(drawn) == FRAMES and drawn[0].shape == (64, 96, 3)
