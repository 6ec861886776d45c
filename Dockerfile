# mmlape on the locked versions, for the CPU and for NVIDIA GPUs (with the NVIDIA Container Toolkit):
#   docker build -t mmlape .
#   docker run --rm --gpus all --shm-size 8g -v "$PWD/data:/mmlape/data" -v "$PWD/work_dirs:/mmlape/work_dirs" mmlape train CONFIG
# Nobody has built this image: no registry was within reach. Its commands were run in a bare Debian 12 instead.
FROM python:3.12-slim-bookworm
# gcc: Triton compiles the start of its kernels; git: a run records the commit of its code
RUN apt-get update && apt-get install -y --no-install-recommends gcc git libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /mmlape
COPY . .
RUN UV_NO_CACHE=1 PYTHON=/usr/local/bin/python3 sh bootstrap/setup.sh .venv
ENV PATH=/mmlape/.venv/bin:$PATH
ENTRYPOINT ["mmlape"]
CMD ["doctor"]
