"""Settings that all recipes share. The dataset sets the scope, the schedule the optimiser, loops, hooks, intervals."""

custom_imports = dict(imports=['mmlape'], allow_failed_imports=False)
env_cfg = dict(
    cudnn_benchmark=False, mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0), dist_cfg=dict(backend='nccl')
)
vis_backends = [dict(type='LocalVisBackend')]
log_level = 'INFO'
load_from = None
resume = False
