# The shop as one image: web by default, worker and migrations by another command (compose.yaml).
# A tag can be moved and a digest cannot. To renew: docker buildx imagetools inspect python:3.13-slim
ARG PYTHON=python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
FROM ${PYTHON} AS build
WORKDIR /srv/payonce
RUN python -m venv .venv
# every package by the hash of its wheel, before the source: pip asks for nothing else, nor runs a build of theirs
COPY deploy/requirements.txt deploy/requirements.txt
RUN .venv/bin/pip install --no-cache-dir --no-deps --only-binary :all: --require-hashes -r deploy/requirements.txt
COPY pyproject.toml README.md LICENSE VERSION ./
COPY idempotency idempotency
COPY payments payments
COPY shop shop
RUN .venv/bin/pip install --no-cache-dir --no-deps --no-index --no-build-isolation -e . \
    && .venv/bin/pip check && .venv/bin/pip uninstall --yes pip setuptools
COPY manage.py ./
COPY deploy/gunicorn.conf.py deploy/gunicorn.conf.py
# the start refuses missing settings; collecting static files needs none of their values
RUN SECRET_KEY=$(head -c 64 /dev/urandom | base64 | tr -d '\n') PUBLIC_URL=https://build.example \
    DATABASE_URL=postgresql://nobody@nowhere/none REDIS_URL=redis://nowhere \
    .venv/bin/python manage.py collectstatic --noinput --verbosity 0

FROM ${PYTHON}
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin payonce \
    && install -d -o 10001 /var/lib/payonce/wechat-platform
COPY --from=build /srv/payonce /srv/payonce
WORKDIR /srv/payonce
ENV PATH=/srv/payonce/.venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 BIND=0.0.0.0:8000
USER 10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s CMD \
    ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
CMD ["gunicorn", "--config", "deploy/gunicorn.conf.py", "shop.wsgi:application"]
