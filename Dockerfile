# The shop as one image: web by default, worker and migrations by another command (compose.yaml).
FROM python:3.13-slim AS build
WORKDIR /srv/payonce
RUN python -m venv .venv
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY idempotency idempotency
COPY payments payments
COPY shop shop
RUN .venv/bin/pip install --no-cache-dir -e '.[shop]' -c constraints.txt
COPY manage.py ./
COPY deploy/gunicorn.conf.py deploy/gunicorn.conf.py
# the start refuses missing settings; collecting static files needs none of their values
RUN SECRET_KEY=$(head -c 64 /dev/urandom | base64 | tr -d '\n') PUBLIC_URL=https://build.example \
    DATABASE_URL=postgresql://nobody@nowhere/none REDIS_URL=redis://nowhere \
    .venv/bin/python manage.py collectstatic --noinput --verbosity 0

FROM python:3.13-slim
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
