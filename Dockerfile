# One image for every service of docker-compose.yaml: Airflow, the Spark driver, and Spark's master and workers.
FROM python:3.11-slim-bookworm AS build

RUN pip install --no-cache-dir "uv>=0.9,<1"
ENV UV_PYTHON_DOWNLOADS=never UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1

WORKDIR /opt/backstream

# Dependencies first: they change less often than the code, and this layer takes minutes.
COPY pyproject.toml uv.lock README.md LICENSE ./
RUN uv sync --locked --no-install-project --extra airflow --extra spark --extra postgres

COPY pipelines pipelines
COPY dags dags
COPY expectations expectations
# The tests of three libraries are 80 MB.
RUN uv sync --locked --extra airflow --extra spark --extra postgres \
    && cd .venv/lib/python3.11/site-packages \
    && find pandas pyarrow scipy -type d -name tests -prune -exec rm -rf {} +

# uv and the layers above are not part of the image.
FROM python:3.11-slim-bookworm

# Spark's scripts are bash, which this image has; they and the health checks need nothing else.
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/backstream

COPY --from=build /opt/backstream/.venv .venv
COPY pyproject.toml README.md LICENSE ./
COPY pipelines pipelines
COPY dags dags
COPY plugins plugins
COPY expectations expectations

# The user of the image cannot write compiled modules. A new named volume takes its owner from the folder in the
# image that it covers.
RUN .venv/bin/python -m compileall -q pipelines dags plugins \
    && useradd --uid 50000 --create-home backstream \
    && install -d -o backstream -g backstream \
        /opt/airflow /opt/airflow/logs /var/lib/backstream /var/lib/spark-work

ENV PATH=/opt/backstream/.venv/bin:$PATH \
    AIRFLOW_HOME=/opt/airflow \
    BACKSTREAM_HOME=/var/lib/backstream \
    SPARK_WORKER_DIR=/var/lib/spark-work \
    PYTHONUNBUFFERED=1
USER backstream
