"""A damaged file of a study is an error, or changes nothing: no planned seed, run or plan disappears."""

from each import each
from synthetic import write_run
from told import keep_figures

import mmlape.lab.experiments.report  # noqa: F401  (imported before its figures are described)
from mmlape.cli import main
from mmlape.errors import ConfigError, DataError
from mmlape.lab.experiments.until import UntilStudy
from mmlape.lab.runs.run import write_order, write_planned

FORMS = {
    'empty': lambda data, other: b'',
    'cut': lambda data, other: data[: len(data) // 2],
    'zeroed': lambda data, other: bytes(len(data)),
    'flipped': lambda data, other: data[:9] + bytes([data[9] ^ 0x80]) + data[10:],
    'of another file': lambda data, other: other,
}
FILES = {
    'until.json': 'arms.json',
    'arms.json': 'base/seeds.json',
    'base/seeds.json': 'arms.json',
    'arm/seed_1/run.json': 'until.json',
}


def test_a_damaged_file_of_a_study_changes_no_answer(tmp_path, monkeypatch, capsys):
    """Of status, of the report, and of a plan that is given again."""
    keep_figures(monkeypatch)
    until = UntilStudy('base', ['arm'], [1, 2, 3, 4], 0.3, work_dir=tmp_path)
    until.fix()
    write_order(tmp_path, ['base', 'arm'])
    for name, score in (('base', 50.0), ('arm', 52.0)):
        write_planned(tmp_path / name, (1, 2, 3, 4))
        for seed in (1, 2, 3):
            write_run(tmp_path / name, seed, score + 0.1 * seed)

    def answer(command):
        capsys.readouterr()
        if command == 'plan':
            try:
                until.fix()
                write_order(tmp_path, ['base', 'arm'])
                return 0, str(until.verdicts()), ''
            except (ConfigError, DataError) as error:
                return 1, '', str(error)
        status = main([command, str(tmp_path)])
        return status, *capsys.readouterr()

    kept = {command: answer(command) for command in ('status', 'report', 'plan')}
    for file, other in each(FILES.items()):
        data = (tmp_path / file).read_bytes()
        for form, damage in FORMS.items():
            damaged = damage(data, (tmp_path / other).read_bytes())
            (tmp_path / file).write_bytes(damaged)
            for command, before in kept.items():
                found = answer(command)
                assert found == before or (found[0] == 1 and file in found[2]), (form, command, found)
            assert (tmp_path / file).read_bytes() == damaged, 'what is damaged is not overwritten'
        (tmp_path / file).write_bytes(data)
    assert {command: answer(command) for command in kept} == kept
