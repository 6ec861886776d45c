"""WordPiece (Schuster and Nakajima, 2012) as BERT's uncased models have it.

The longest known pieces, from the left. A vocabulary with complete words alone, as
`write_vocabulary` makes it of captions, is a tokeniser by words.
"""

import os
import string
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from mmlape.errors import DataError
from mmlape.files import atomic_path

PAD, UNKNOWN, CLS = '[PAD]', '[UNK]', '[CLS]'
SPECIAL = (PAD, UNKNOWN, CLS)
CONTINUED = '##'
"""Stands before a piece inside a word."""
CHINESE = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2CEAF), (0x2F800, 0x2FA1F))
LONGEST = 100
"""Characters of the longest word that is split; a longer one is unknown."""


def split_words(text: str) -> list[str]:
    """Split a text into words, punctuation marks and Chinese characters, lower case and without accents."""
    characters = unicodedata.normalize('NFD', text.lower())
    plain = (c for c in characters if unicodedata.category(c) != 'Mn')
    return ''.join(f' {c} ' if _stands_alone(c) else c for c in plain).split()


def _stands_alone(character: str) -> bool:
    chinese = any(first <= ord(character) <= last for first, last in CHINESE)
    is_mark = unicodedata.category(character).startswith('P')
    return chinese or character in string.punctuation or is_mark


def write_vocabulary(path: str | Path, texts: Iterable[str]) -> list[str]:
    """Write and return a vocabulary, one entry a line.

    The special entries, then all words of the texts, sorted.
    """
    words = sorted({word for text in texts for word in split_words(text)})
    with atomic_path(Path(path)) as partial:
        partial.write_text('\n'.join([*SPECIAL, *words]) + '\n', encoding='utf-8')
    return [*SPECIAL, *words]


class WordPieceTokenizer:
    """Turn texts into rows of ids of one length: [CLS], the pieces, then padding.

    There is no [SEP] behind the pieces, as in big_vision's LiT.

    The file is read on first use, so that a model can be built, and counted, without it.

    Args:
        vocab_file: A piece a line, its id is the line's number from 0, such as BERT's
            ``vocab.txt``.
        vocab_size: Number of its lines.
        length: Ids of a row, [CLS] included; what is longer is cut off.
    """

    pad = 0
    """The id of padding."""

    def __init__(self, vocab_file: str, vocab_size: int, length: int = 16) -> None:
        self.vocab_file, self.vocab_size, self.length = vocab_file, vocab_size, length

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each piece.

        Raises:
            DataError: The file is missing, has another number of lines, or lacks a special entry.
        """
        path = os.path.expanduser(self.vocab_file)
        if not os.path.isfile(path):
            raise DataError(
                f"Vocabulary {path} does not exist. BERT's is vocab.txt of bert-base-uncased; for "
                'your own captions mmlape.projects.lit.tokenizer.write_vocabulary writes one; the '
                'mini data have one.'
            )
        pieces = Path(path).read_text(encoding='utf-8').splitlines()
        missing = [entry for entry in SPECIAL if entry not in pieces]
        if missing or pieces[0] != PAD:
            raise DataError(f'Vocabulary {path} needs a line for each of {", ".join(SPECIAL)}, and {PAD} first.')
        if len(pieces) != self.vocab_size:
            raise DataError(
                f'Vocabulary {path} has {len(pieces)} lines: set '
                f'model.tokenizer.vocab_size={len(pieces)}, not {self.vocab_size}, for training; a '
                'trained model needs the file that it was trained with.'
            )
        return {piece: number for number, piece in enumerate(pieces)}

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Return the ids (B, length) of texts, int64."""
        rows = torch.full((len(texts), self.length), self.pad)
        for row, text in zip(rows, texts):
            ids = [self.ids[CLS], *(piece for word in split_words(text) for piece in self._pieces(word))]
            ids = ids[: self.length]
            row[: len(ids)] = torch.tensor(ids)
        return rows

    def _pieces(self, word: str) -> list[int]:
        """Return the ids of a word's pieces, the longest first.

        That of [UNK] if it cannot be put together.
        """
        ids, start = [], 0
        while start < len(word) <= LONGEST:
            prefix = CONTINUED if start else ''
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self.ids), None)
            if end is None:
                return [self.ids[UNKNOWN]]
            ids.append(self.ids[prefix + word[start:end]])
            start = end
        return ids or [self.ids[UNKNOWN]]
