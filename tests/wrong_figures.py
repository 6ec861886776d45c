"""Wrong lines outside the models, for `wrong_formulas.py`: in figures, comparisons, resumed runs and readers of files.

They raise no error by themselves: a wrong AP, a mean over runs that differ, a checkpoint that is deleted.
"""

OF_METRICS = ('tests/test_metrics.py', 'tests/test_aggregate.py', '-k', 'not real_training')
OF_DATA = (
    'tests/test_mini_data.py', 'tests/test_data_checks.py', 'tests/test_retarget.py', 'tests/test_fraction.py',
    'tests/test_array_data.py', '-k', 'not tool and not command and not training and not killed and not linear',
)  # fmt: skip
OF_RUNS = (
    'tests/test_identity.py', 'tests/test_record.py', 'tests/test_run_rules.py', 'tests/test_aggregate.py',
    'tests/test_report.py', 'tests/test_diagnosis.py', '-k',
    'not lasts and not forked and not real_training and not command and not tool',
)  # fmt: skip
OF_COMPARISONS = (
    'tests/test_statistics.py', 'tests/test_sample_size.py', 'tests/test_aggregate.py', 'tests/test_vtab.py',
    'tests/test_report_fractions.py', 'tests/test_report.py', '-k',
    'not tool and not real_training and not command and not check_data',
)  # fmt: skip
OF_LAUNCHERS = (
    'tests/test_run_rules.py', 'tests/test_slurm_launcher.py', 'tests/test_study.py', 'tests/test_progress.py',
    'tests/test_status.py', '-k', 'not prints_a_table',
)  # fmt: skip
OF_ENGINE = (
    'tests/test_run_rules.py', 'tests/test_engine.py', 'tests/test_batch_guard.py', 'tests/test_paramwise.py',
    'tests/test_gradient_norm.py', 'tests/test_randomness.py', '-k',
    'not two_processes and not training_logs and not accumulation_repeats',
)  # fmt: skip
OF_ANALYSIS = (
    'tests/test_model_cost.py', 'tests/test_size_sweep.py', 'tests/test_gradient_norm.py',
    'tests/test_visualize_pe.py', 'tests/test_explain_pe.py', 'tests/test_drawn_numbers.py', '-k',
    'not command and not tool and not two_processes and not training_logs',
)  # fmt: skip
OF_CHECKPOINTS = (
    'tests/test_checkpoint_tools.py', 'tests/test_checkpoint_files.py', 'tests/test_checkpoint_records.py',
    'tests/test_checkpoint.py', 'tests/test_normalisation.py', '-k', 'not command_line',
)  # fmt: skip
