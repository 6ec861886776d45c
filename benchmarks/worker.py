"""One of the processes of the suite 'processes', started by torchrun: trains a few steps, prints seconds an image."""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks.comparison import Settings, step_work
from benchmarks.models import vit
from benchmarks.timing import interleave, spread


def main() -> None:
    settings = Settings(**json.loads(sys.argv[1]))
    cuda = settings.device == 'cuda'
    dist.init_process_group('nccl' if cuda else 'gloo')
    if cuda:
        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
    size, dtype = settings.sizes[0], settings.dtypes[0]
    model = DistributedDataParallel(vit(settings, size, pe_joining='lape'))
    work = step_work(model, settings.inputs(size), settings, dtype)
    # every process must do as many steps as the others, so the time is no limit here
    samples = interleave([work], settings.device, 3 if settings.quick else 8, float('inf'))[0]
    if dist.get_rank() == 0:
        print(spread(samples)['median'] / settings.images(size) / dist.get_world_size(), flush=True)
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
