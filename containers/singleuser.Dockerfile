# A Jupyter server whose kernels attach GPUs of a pool: alone, or spawned by JupyterHub, which replaces the command.
# docker run --init -p 127.0.0.1:8888:8888 -e GPUPOOL_ENDPOINT=POOL:7460 -e GPUPOOL_TOKEN_FILE=/run/secrets/ann.token IMAGE
FROM python:3.12-slim-bookworm
COPY jupyter_gpupool-*.whl /tmp/wheel/
RUN pip install --no-cache-dir "$(echo /tmp/wheel/*.whl)[jupyter,examples]" "jupyterhub>=5.2,<7" \
 && rm -r /tmp/wheel \
 && useradd --uid 1000 --create-home jovyan
USER jovyan
WORKDIR /home/jovyan
EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser"]
