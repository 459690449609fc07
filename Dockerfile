# Hermod in one container: docker build -t hermod . && docker run --rm hermod hermod ask "what time is it in Berlin?"
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY reading reading
COPY agent_core agent_core
COPY adapters adapters
COPY bot bot
RUN python -m venv /opt/hermod \
 && /opt/hermod/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt '.[slack,postgres]'

FROM python:3.12-slim
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/hermod hermod
COPY --from=build /opt/hermod /opt/hermod
ENV PATH=/opt/hermod/bin:$PATH PYTHONUNBUFFERED=1 \
    HERMOD_STORAGE__URL=sqlite:////var/lib/hermod/hermod.db \
    HERMOD_HTTP__HOST=0.0.0.0
USER hermod
WORKDIR /var/lib/hermod
VOLUME /var/lib/hermod
EXPOSE 8484
HEALTHCHECK --interval=30s --timeout=5s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8484/healthz', timeout=4)"]
STOPSIGNAL SIGTERM
CMD ["hermod", "run"]
