"""LiT: losses against NumPy, also in two processes; tokens; a frozen tower; zero-shot classes."""

import json
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from lit_helpers import COLOURS, lit, squares
from properties import examples

from mmlape.errors import ConfigError
from mmlape.projects.lit.model import canonical, sigmoid_loss, softmax_loss
from mmlape.projects.lit.text import TransformersText
from mmlape.projects.lit.tokenizer import WordPieceTokenizer, split_words

# losses


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.sqrt((rows**2).sum(1, keepdims=True))


def test_losses_are_numpys():
    random = np.random.default_rng(0)
    images, texts = unit(random.normal(size=(5, 3))), unit(random.normal(size=(5, 3)))
    logits = 7.0 * images @ texts.T
    softmax = sigmoid = 0.0
    for i in range(5):
        softmax -= np.log(np.exp(logits[i, i]) / np.exp(logits[i]).sum()) / 10
        softmax -= np.log(np.exp(logits[i, i]) / np.exp(logits[:, i]).sum()) / 10
        for j in range(5):
            sigmoid += np.log1p(np.exp((-1 if i == j else 1) * (logits[i, j] - 2.71))) / 5
    x, y, scale, bias = (torch.tensor(value, dtype=torch.float64) for value in (images, texts, [7.0], [-2.71]))
    torch.testing.assert_close(softmax_loss(x, y, scale).item(), softmax, rtol=1e-12, atol=0)
    torch.testing.assert_close(sigmoid_loss(x, y, scale, bias).item(), sigmoid, rtol=1e-12, atol=0)


def test_two_processes_are_one(tmp_path):
    script = tiny.ROOT / 'tests' / 'lit_processes.py'
    out = tiny.run(sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc_per_node=2', script,
                   cwd=tmp_path)  # fmt: skip
    assert out.count('losses and models equal') == 2


# texts


def test_words_are_berts():
    """As ``transformers`` splits them: an underscore and a sign are words, a symbol is part of one."""
    words = split_words("Don't x_y  $5\tna\u00efve\u00a0T-shirt\u2026 2\u00bd\u2605 \u65e5\u672cb")
    assert ' '.join(words) == "don ' t x _ y $ 5 naive t - shirt \u2026 2\u00bd\u2605 \u65e5 \u672c b"


def again(text: str, pieces: list[str], length: int) -> list[int]:
    """WordPiece by regular expressions, whose first alternative that fits is taken: the longest one."""
    longest = sorted(pieces, key=len, reverse=True)
    starts, inside = ([one for one in longest if one.startswith('##') == within] for within in (False, True))
    first, further = (re.compile('|'.join(re.escape(one.removeprefix('##')) for one in of)) for of in (starts, inside))
    ids = [pieces.index('[CLS]')]
    for word in re.findall(r'\w+|[,!]', text.lower()):
        found, end = [], 0
        while end < len(word) <= 100 and (match := (further if end else first).match(word, end)):
            found.append(pieces.index('##' * bool(end) + match[0]))
            end = match.end()
        ids += found if end == len(word) else [pieces.index('[UNK]')]
    return (ids + [0] * length)[:length]


PIECE = st.text('abc', min_size=1, max_size=4)


@examples(max_examples=80)
@given(st.sets(PIECE), st.sets(PIECE), st.lists(st.text('abcABC ,!', max_size=12)))
def test_pieces_of_words(tmp_path_factory, words, continued, texts):
    """Also of a word of 100 letters, and of one of 101, which is unknown."""
    pieces = [
        '[PAD]',
        '[UNK]',
        '[CLS]',
        ',',
        'd',
        '##d',
        *sorted(words),
        *(f'##{piece}' for piece in sorted(continued)),
    ]
    file = tmp_path_factory.mktemp('v') / 'v.txt'
    file.write_text('\n'.join(pieces) + '\n')
    tokens = WordPieceTokenizer(str(file), len(pieces), length=7)
    texts += ['d' * 100, 'd' * 101, '']
    assert tokens(texts).tolist() == [again(text, pieces, 7) for text in texts]


def test_padding_changes_nothing(tmp_path):
    model = lit(tmp_path).eval()
    ids = model.tokenizer(['a red square', 'a photo of a blue square'])
    torch.testing.assert_close(model.text(ids)[0], model.text(ids[:, :4])[0])
    moved = model.text(ids[:, [0, 2, 1, *range(3, 8)]])
    assert (moved - model.text(ids)).abs().amax() > 1e-3  # the order counts


def test_layers_start_apart(tmp_path):
    model = lit(tmp_path, text=dict(type='mmlape.TextTransformer', embed_dims=32, num_layers=2, num_heads=2))
    one, two = (layer.linear1.weight for layer in model.text.encoder.layers)
    assert (one - two).abs().amax() > 0.1


# the model


def test_the_image_tower_is_locked(tmp_path):
    model = lit(tmp_path).train()
    before = {name: value.clone() for name, value in model.named_parameters()}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    data = model.data_preprocessor(squares(8, 0)[0], True)
    assert torch.equal(model(data['inputs']), model(data['inputs']))  # no drop path
    model(**data, mode='loss')['loss'].backward()
    assert all(p.grad is None for p in model.backbone.parameters())
    assert all(p.grad is not None for name, p in model.named_parameters() if not name.startswith('backbone.'))
    optimizer.step()
    moved = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert 'temperature' in moved and 'text.head.weight' in moved
    assert not any(name.startswith('backbone.') for name in moved)
    assert before['temperature'].item() == pytest.approx(np.log(10))


def test_embeddings_loss_and_classes_are_what_the_equations_say(tmp_path):
    model = lit(tmp_path, embed_dims=24, loss='sigmoid').eval()
    batch, _ = squares(6, 1)
    data = model.data_preprocessor(batch, False)
    with torch.no_grad():
        x = unit(model.image_head(model.backbone(data['inputs'])[-1]).numpy())
        y = unit(model.text(model.tokenizer([s.gt_caption for s in data['data_samples']])).numpy())
        found = model(**data, mode='loss')['loss'].item()
        logits = 10 * x @ y.T - 2.71
        signs = 2 * np.eye(6) - 1
        assert found == pytest.approx(np.log1p(np.exp(-signs * logits)).sum() / 6, rel=1e-5)
        classes = []
        for colour in COLOURS:
            texts = [f'a {colour} square', f'a photo of a {colour} square']
            classes.append(unit(model.text(model.tokenizer(texts)).numpy()).mean(0))
        scores = 10 * x @ unit(np.array(classes)).T
        samples = model(**data, mode='predict')
    for sample, row, image, text in zip(samples, scores, x, y):
        np.testing.assert_allclose(sample.pred_score, np.exp(row) / np.exp(row).sum(), rtol=1e-4)
        assert sample.pred_label.item() == row.argmax()
        np.testing.assert_allclose(sample.image_embedding, image, atol=1e-5)
        np.testing.assert_allclose(sample.text_embedding, text[None], atol=1e-5)


def test_it_learns(tmp_path):
    """Four colours over a frozen random tower; the captions alone say what they are called."""
    model = lit(tmp_path, loss='sigmoid')
    held_out, labels = squares(200, 99)

    def accuracy() -> float:
        model.eval()
        with torch.no_grad():
            samples = model(**model.data_preprocessor(held_out, False), mode='predict')
        return float(np.mean([sample.pred_label.item() == label for sample, label in zip(samples, labels)]))

    before = accuracy()
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    for step in range(60):
        data = model.data_preprocessor(squares(32, step)[0], True)
        optimizer.zero_grad()
        model(**data, mode='loss')['loss'].backward()
        optimizer.step()
    assert before < 0.6 and accuracy() > 0.95


@pytest.mark.parametrize(
    ('text', 'keep', 'result'),
    [
        ('T-shirt/top_piece!', '', 'tshirttop piece'),
        ('crane, the  bird', ',', 'crane, the bird'),
        ('A bad photo of the {}.', '', 'a bad photo of the {}'),
    ],
)
def test_canonical_texts(text, keep, result):
    assert canonical(text, keep) == result


def test_clips_names_and_templates(tmp_path):
    model = lit(tmp_path, classes='imagenet', templates='openai_imagenet')
    assert (len(model.classes), len(model.templates)) == (1000, 80)
    assert 'itap of a {}' in model.templates


def test_names_of_classes_keep_their_commas(tmp_path, monkeypatch):
    texts = []
    model = lit(tmp_path, classes=['Crane, bird', "crane's_hook."], templates=['A photo: {}!'])
    monkeypatch.setattr(model, 'embed_texts', lambda given: texts.extend(given) or torch.eye(2))
    model.class_embeddings()
    assert texts == ['a photo crane, bird', 'a photo cranes hook']


# text towers of transformers


@pytest.fixture(scope='module')
def bert(tmp_path_factory):
    """A folder as transformers writes it: a tiny BERT with random weights, and its tokenizer."""
    transformers = pytest.importorskip('transformers')
    folder = tmp_path_factory.mktemp('bert')
    words = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *['a', 'square', 'photo', 'of'], *COLOURS, '##dish']
    (folder / 'vocab.txt').write_text('\n'.join(words) + '\n')
    size = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    torch.manual_seed(1)
    config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=12, **size)
    transformers.BertModel(config).save_pretrained(folder)
    transformers.BertTokenizerFast(str(folder / 'vocab.txt')).save_pretrained(folder)
    return str(folder)


def test_a_text_tower_of_transformers(bert, tmp_path):
    from safetensors.torch import load_file

    for pool in ('cls', 'mean'):
        text = dict(type='mmlape.TransformersText', name=bert, pool=pool)
        model = lit(tmp_path, text=text, tokenizer=dict(name=bert, length=10)).eval()
        read = load_file(f'{bert}/model.safetensors')
        assert all(torch.equal(value, read[name]) for name, value in model.text.encoder.named_parameters())
        ids = model.tokenizer(['a reddish square', 'a photo of a blue square'])
        assert ids[0].tolist() == [2, 5, 9, 13, 6, 3, 0, 0, 0, 0]
        expected = model.text.encoder(input_ids=ids[:1, :6]).last_hidden_state
        expected = model.text.head(expected[:, 0] if pool == 'cls' else expected.mean(dim=1))
        torch.testing.assert_close(model.text(ids)[:1], expected)  # padding changes nothing
        model.train()(**model.data_preprocessor(squares(4, 0)[0], True), mode='loss')['loss'].backward()
        assert all(p.grad is not None for p in model.text.parameters())  # as two processes need it


def test_the_mean_is_over_the_tokens_that_are_no_padding():
    class OneHot(torch.nn.Module):
        def forward(self, input_ids, attention_mask):
            return SimpleNamespace(last_hidden_state=torch.nn.functional.one_hot(input_ids, 4).float())

    text = TransformersText.__new__(TransformersText)  # without the library
    torch.nn.Module.__init__(text)
    text.encoder, text.head, text.pad, text.pool = OneHot(), torch.nn.Identity(), 0, 'mean'
    assert text(torch.tensor([[2, 1, 0, 0], [3, 1, 1, 2]])).tolist() == [[0, 0.5, 0.5, 0], [0, 0.5, 0.25, 0.25]]


def test_code_of_a_text_tower_is_not_run(tmp_path, monkeypatch):
    pytest.importorskip('transformers')
    monkeypatch.setattr('builtins.input', lambda *_: 'y')
    own = dict(model_type='own', auto_map=dict(AutoConfig='own.Config'))
    (tmp_path / 'config.json').write_text(json.dumps(own))
    (tmp_path / 'own.py').write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(ConfigError, match='transformers has no'):
        lit(tmp_path, text=dict(type='mmlape.TransformersText', name=str(tmp_path)))
    assert not (tmp_path / 'ran').exists()
