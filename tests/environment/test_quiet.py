"""Commands leave out what the stack prints and nobody can act on; imports and `MMLAPE_DEBUG=1` leave out nothing."""

import warnings

from mmengine.logging import MMLogger, print_log

from mmlape.console.quiet import MESSAGES, quiet_stack

TEXTS = (
    (UserWarning, '`reduce_zero_label` will be deprecated, if you would like to ignore the zero label'),
    (UserWarning, 'Default ``avg_non_ignore`` is False, if you would like to ignore the certain label'),
    (UserWarning, 'faster_coco_eval is not installed, metrics will not be computed.'),
    (SyntaxWarning, r"invalid escape sequence '\d'"),
    (FutureWarning, 'Importing from timm.models.layers is deprecated, please import via timm.layers'),
    (
        FutureWarning,
        "`torch.cuda.amp.GradScaler(args...)` is deprecated. Please use `torch.amp.GradScaler('cuda', args...)`",
    ),
)


def _shown(capsys) -> str:
    logger = MMLogger.get_instance('test_quiet')
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        with quiet_stack():
            for category, text in (*TEXTS, (UserWarning, 'the learning rate is odd')):
                warnings.warn(text, category, stacklevel=1)
            for text in (*MESSAGES, 'a loss is odd'):
                print_log(f'{text} and more')
                print_log(f'{text} and more', logger)
    printed = capsys.readouterr()
    return '\n'.join([*(str(one.message) for one in caught), printed.out, printed.err])


def test_only_what_nobody_can_act_on_is_left_out_and_only_inside_a_command(capsys, monkeypatch):
    known = [*(text for _, text in TEXTS), *MESSAGES]
    quiet = _shown(capsys)
    assert 'the learning rate is odd' in quiet and quiet.count('a loss is odd and more') == 2
    assert not [text for text in known if text in quiet]
    print_log(MESSAGES[0])
    assert MESSAGES[0] in capsys.readouterr().out, 'outside a command the stack prints as ever'
    monkeypatch.setenv('MMLAPE_DEBUG', '1')
    debug = _shown(capsys)
    assert not [text for text in known if text not in debug]
