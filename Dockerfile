# Hermod in one container: docker build -t hermod . && docker run --rm hermod hermod ask "what time is it in Berlin?"
# It needs no privilege and writes nothing outside its volume and two tmpfs; docs/sandbox.md has the command line.
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY reading reading
COPY agent_core agent_core
COPY adapters adapters
COPY bot bot
RUN python -m venv /opt/hermod \
 && /opt/hermod/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt '.[slack,discord,postgres,sandbox]'

FROM python:3.12-slim
# A font with Chinese, Japanese and Korean letters for plots; the packages of the sandbox bring Latin ones.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends fonts-wqy-zenhei \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --system --gid 10001 hermod \
 && useradd --system --uid 10001 --gid 10001 --create-home --home-dir /var/lib/hermod hermod
COPY --from=build /opt/hermod /opt/hermod
ENV PATH=/opt/hermod/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    HERMOD_STORAGE__URL=sqlite:////var/lib/hermod/hermod.db \
    HERMOD_HTTP__HOST=0.0.0.0
# matplotlib's list of fonts, which takes seconds to make and could not be kept under a read-only root.
RUN MPLCONFIGDIR="/opt/hermod/share/hermod/fonts-$(python -c 'from bot.tools.python_sandbox.interpreter import name_fonts; print(name_fonts())')" \
    python -c 'import matplotlib.font_manager'
USER hermod
WORKDIR /var/lib/hermod
VOLUME /var/lib/hermod
EXPOSE 8484
HEALTHCHECK --interval=30s --timeout=5s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8484/healthz', timeout=4)"]
STOPSIGNAL SIGTERM
CMD ["hermod", "run"]
