# The pool server. Its ledger is in the volume; tokens: docker exec POOL gpupool token create --user ann
FROM python:3.12-slim-bookworm
COPY jupyter_gpupool-*.whl /tmp/wheel/
RUN pip install --no-cache-dir "$(echo /tmp/wheel/*.whl)[pool,postgresql,kubernetes]" \
 && rm -r /tmp/wheel \
 && useradd --uid 1000 --create-home gpupool \
 && install -d -m 0700 -o gpupool -g gpupool /var/lib/gpupool
ENV GPUPOOL_HOME=/var/lib/gpupool
USER gpupool
VOLUME /var/lib/gpupool
EXPOSE 7460
# SIGTERM ends it in order: leases and sessions are in the ledger.
STOPSIGNAL SIGTERM
ENTRYPOINT ["gpupool"]
CMD ["pool", "serve", "--listen", "0.0.0.0:7460"]
