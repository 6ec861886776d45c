"""Frames of one video stay together in the division of images; both parts have each class that can be in both."""

from collections import Counter
from pathlib import Path

import pytest
from drawn_data import class_folders, maps
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from mmlape.new.clips import divide as divide_names
from mmlape.new.clips import find_clips
from mmlape.new.command import look

CLIPS = st.lists(st.integers(1, 30), min_size=1, max_size=6).filter(lambda counts: sum(counts) >= 4)
NAMES = st.sampled_from(
    ['{video}/{frame:06}.jpg', 'a/DJI_{video:04}_{frame}.jpg', 'v{video}-{frame:03}_jpg.rf.{hashed:x}.jpg',
     '{hashed:08x}-film{video}_frame {frame}.png', '{video}_{frame}_1080p.jpg']
)  # fmt: skip


@examples()
@given(counts=CLIPS, name=NAMES, seed=st.integers(0, 99), data=st.data())
def test_a_clip_is_in_one_part_or_gives_a_block_without_a_gap(counts, name, seed, data):
    clips = [
        [name.format(video=video, frame=frame, hashed=16**7 + 10**6 * video + frame * 7919) for frame in range(count)]
        for video, count in enumerate(counts)
    ]
    images = data.draw(st.permutations([image for clip in clips for image in clip]))
    chosen = divide_names(images, [{'a'}] * len(images), seed)
    held = {images[place] for part in chosen for place in part}
    assert sum(map(len, chosen)) == len(held) and 0 < len(held) <= max(0.5 * len(images), 1)
    cut = [clip for clip in clips if 0 < len(held & {*clip}) < len(clip)]
    for clip in cut:
        assert clip[-len(held & {*clip}) :] == sorted(held & {*clip}, key=clip.index)
    total, target = len(images), round(0.2 * len(images))
    if cut and len(counts) > 1:
        assert not [count for count in counts if target <= count <= total / 2], 'a complete clip would do'


@examples()
@given(count=st.integers(4, 40), seed=st.integers(0, 99), alike=st.booleans())
def test_images_with_nothing_in_common_are_drawn(count, seed, alike):
    words = [f'{chr(97 + place // 26)}{chr(97 + place % 26)}' for place in range(count)]
    assert find_clips(words) == [[place] for place in range(count)]
    labels = [{'a' if alike else word} for word in words]
    assert len(divide_names(words, labels, seed)) == max(1, round(0.2 * count))


@examples()
@given(counts=st.lists(st.integers(2, 12), min_size=2, max_size=3), seed=st.integers(0, 9))
def test_classes_that_were_photographed_one_after_another_are_in_both_parts(counts, seed):
    """The opposite fault: a block from the end of all photographs would be the last class alone."""
    labels = [{place} for place, count in enumerate(counts) for _ in range(count)]
    images = [f'IMG_{place:04}.jpg' for place in range(len(labels))]
    if len(images) < 10:
        return
    held = {place for clip in divide_names(images, labels, seed) for place in clip}
    trained = set().union(*(labels[place] for place in range(len(images)) if place not in held))
    assert trained == {*range(len(counts))}


@pytest.mark.parametrize('make', [maps, class_folders])
def test_the_books_balance_and_the_note_names_what_is_held_back(make, tmp_path):
    make(tmp_path)
    found = look(tmp_path)
    found.divide(None, 0)
    for book in found.books():
        assert book.total == sum(book.used.values()) + book.left_out.total() and book.used['val']
    assert make is maps or found.counts.total() == len(found.of_split['train'])
    if make is maps:
        (note,) = found.remarks()
        assert 'images/06.jpg to 07.jpg are for validation; --split random' in note
    parts = [Counter(Path(sample.image).parent for sample in part) for part in found.of_split.values()]
    assert parts[0].keys() == parts[1].keys()
