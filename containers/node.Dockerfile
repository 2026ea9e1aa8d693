# A node. docker run --init --gpus all --network host -v …/node.token:/run/secrets/node.token:ro IMAGE \
#   node start --pool POOL:7460 --token-file /run/secrets/node.token --listen-host ADDRESS_OF_THIS_MACHINE
# `--init` removes what is left of processes whose worker was killed, such as a software GPU's compiler.
# NVIDIA's driver comes from the host with `--gpus all`. `--driver software --software-gpus 2` lends software GPUs instead.
FROM python:3.12-slim-bookworm
COPY jupyter_gpupool-*.whl /tmp/wheel/
RUN pip install --no-cache-dir "$(echo /tmp/wheel/*.whl)[pool,cuda13]" \
 && rm -r /tmp/wheel \
 && useradd --uid 1000 --create-home gpupool \
 && install -d -m 0700 -o gpupool -g gpupool /var/lib/gpupool
ENV GPUPOOL_HOME=/var/lib/gpupool \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER gpupool
# SIGTERM ends the workers in order, and the pool hears of it.
STOPSIGNAL SIGTERM
ENTRYPOINT ["gpupool"]
CMD ["node", "start", "--help"]
