FROM python:3.11.13-slim-bookworm

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

WORKDIR /app
COPY requirements.txt .
# pip compiles what it installs
RUN pip install -r requirements.txt

COPY . .
RUN python -m compileall -q lab components pages \
    && useradd --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin lab

# torch asks for the user's name and creates a cache directory when torch._dynamo is imported
ENV HOME=/nonexistent USER=lab LOGNAME=lab \
    TORCHINDUCTOR_CACHE_DIR=/tmp/lab-inductor \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONPATH=/app

USER 10001:10001
EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4)"]
CMD ["streamlit", "run", "lab/Home.py", "--server.address=0.0.0.0", "--server.port=8501"]
