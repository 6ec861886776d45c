"""The explanations below the tables of a report: how to read them, what the tests assume, where figures are from."""

from mmlape.experiments.report.content import Report
from mmlape.experiments.statistics import CONFIDENCE, LEAST


def legend() -> str:
    """Explain the table of results."""
    return (
        'Last is the evaluation after the last iteration; best is the best evaluation of each run, picked on the '
        'images that it is measured on, so its mean is optimistic. The two are never mixed. The deviation is the '
        f"sample standard deviation over seeds, n in brackets; the interval is Student's t, {CONFIDENCE:.0%}, of the "
        f'mean, and there is none for n < {LEAST}. Values are in points: AP times 100, others in percent.'
    )


def tests(report: Report, which: str) -> str:
    """Explain the tests of the comparisons at 'last' or 'best', and Holm's family."""
    count = sum(one.which == which for one in report.comparisons)
    tested = sum(one.which == which and one.welch.p is not None for one in report.comparisons)
    pairs = sum(one.which == which and one.paired.p is not None for one in report.comparisons)
    return (
        "Differences are in points. Welch's test takes all seeds of either arm, the paired t-test those in common; "
        "choose one of them before you read the results. Holm's correction is over the comparisons of this table that "
        f'have a p: {tested} of {count} by Welch, {pairs} by pairs, each test a family of its own. Fewer than {LEAST} '
        'seeds in an arm, or values without any spread, give neither interval nor p.'
    )


def classes() -> str:
    """Explain the table of classes."""
    return (
        "Of the last evaluation, sorted by the difference; bars have Welch's interval where there are three seeds. "
        "Holm's correction is over the classes of one table."
    )


def seeds() -> str:
    """Explain the table of seeds."""
    return (
        'Seeds that each of two arms needs to find a true difference with 80 % power at the 5 % level (two-sided '
        't-test, equal deviations). The deviation is pooled over the two arms; in brackets its chi-square interval, '
        'and the seeds for either end: few seeds know their own spread badly.'
    )


def cost() -> str:
    """Explain the table of costs."""
    return (
        'Memory and times are means over the averaged runs, as they recorded them. GPU hours are '
        'the sum over all runs, failed ones included. FLOPs (multiply-adds) are those of the config as published; '
        'the command mmlape model-cost counts those of any config.'
    )


def paper(report: Report) -> list[str]:
    """Return the source of the paper's figures, and which arms were not trained as published."""
    quoted = [result for result in report.results if result.known and result.known.results]
    if not quoted:
        return []
    lines = ["The paper's figures are those of LaPE (ICCV 2023), means of five seeds; they were not measured here."]
    for result in quoted:
        record = result.first.record if result.first else {}
        unit, length = result.known.length or (None, None)
        trained = record.get('max_epochs' if unit == 'Epochs' else 'max_iters')
        apart = [
            f'{mine} {what} instead of {theirs}'
            for mine, theirs, what in (
                (trained, length, (unit or '').lower()),
                (record.get('total_batch'), result.known.batch, 'images a batch'),
            )
            if mine is not None and theirs is not None and mine != theirs
        ]
        if apart:
            lines.append(f'{result.name} was not trained as published: {", ".join(apart)}.')
    return lines
