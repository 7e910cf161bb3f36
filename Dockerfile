# A server over an index: docker build -t crosscut . && docker run -p 8000:8000 -v ./my.index:/index -e CROSSCUT_TOKEN=… crosscut
FROM python:3.12-slim AS build
ARG EXTRAS=serve
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir ".[$EXTRAS]" \
    && find /venv -name __pycache__ -type d -prune -exec rm -rf {} +

FROM python:3.12-slim
COPY --from=build /venv /venv
RUN useradd --create-home --uid 10001 crosscut && mkdir /index && chown crosscut /index
VOLUME /index
USER crosscut
ENV PATH=/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 NUMBA_CACHE_DIR=/tmp/numba
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/ready', timeout=2)"]
ENTRYPOINT ["crosscut", "serve"]
CMD ["/index", "--host", "0.0.0.0"]
