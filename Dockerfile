# The package with its programs, as `make install` installs it:
#
#     docker build --tag tff_pcdd .                              # for processors
#     docker build --tag tff_pcdd:gpu --build-arg GPU=1 .        # for NVIDIA GPUs; run it with --gpus=all
#     docker run --rm -v "$PWD/runs:/runs" tff_pcdd \
#         tff-pcdd train --algorithm=fedgela --output_dir=/runs/mine

FROM python:3.13-slim AS base
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git make \
    && rm -rf /var/lib/apt/lists/*

FROM base
ARG GPU=
WORKDIR /opt/tff_pcdd
COPY . .
RUN make install GPU=$GPU
ENV PATH=/opt/tff_pcdd/.venv/bin:$PATH
# Ray wants tff-pcdd on PATH; see docs/how-to/many_machines.md.
RUN useradd --create-home user && mkdir /runs && chown user /runs
USER user
WORKDIR /runs
CMD ["tff-pcdd", "--help"]
