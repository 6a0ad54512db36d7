# rewardloop in an image. The base images are arguments, so that it can be
# built from a mirror, or from bases made here (make docker-check, which needs
# no Docker engine):
#
#   docker build -t rewardloop .
#   docker run --rm --init -p 8080:8080 -v "$PWD/conf:/etc/rewardloop:ro" rewardloop
#
# conf holds config.yaml and token; another command line replaces CMD:
#
#   docker run --rm rewardloop doctor
#
# ONNX Runtime and ffmpeg are in the image, and so is the model by which builtin://ocr reads (16 MB).
# MODELS names others, "" none; a folder with models can also be mounted at
# /var/lib/rewardloop/models, in place of those of the image:
#
#   docker build --build-arg MODELS="ppocr-v4-mobile clip-vit-large-patch14" -t rewardloop .
#
# The target cuda runs models on NVIDIA cards as well (docs/gpu.md); without a target it is the
# image for CPUs, a tenth of its size:
#
#   docker build --target cuda -t rewardloop-cuda .
#
# For several processors, as `make release` and .github/workflows/release.yml build it; processors other than the machine's own are
# emulated in every stage, the compiler included:
#
#   docker buildx build --platform linux/amd64,linux/arm64 -t rewardloop .
#
# VERSION, REVISION, CREATED and SOURCE are what the image's labels (org.opencontainers.image.*) and `rewardloop version` say.
ARG GO_IMAGE=golang:1.26-bookworm
ARG BASE_IMAGE=debian:bookworm-slim
# CUDA 13 and cuDNN 9, which ONNX Runtime's provider is built for, on a C library that is at
# least Debian 12's.
ARG CUDA_IMAGE=nvidia/cuda:13.0.2-cudnn-runtime-ubuntu24.04

# --- modules: what changes seldom, so that an edit does not fetch it again ----
FROM ${GO_IMAGE} AS modules
# Go's own settings, where the network asks for other than the defaults. They
# stay in this stage and the next.
ARG GOPROXY
ARG GOSUMDB
ARG GONOSUMDB
ARG GOPRIVATE
ARG GOFLAGS
ARG SSL_CERT_FILE
WORKDIR /src
COPY Makefile go.mod go.sum ./
COPY scripts scripts
RUN scripts/deps.sh debian modules

# --- build: the same make target as outside -----------------------------------
FROM modules AS build
ARG GOPROXY
ARG GOSUMDB
ARG GONOSUMDB
ARG GOPRIVATE
ARG GOFLAGS
ARG SSL_CERT_FILE
COPY . .
ARG VERSION=""
ARG REVISION=""
RUN VERSION=$VERSION REVISION=$REVISION make build && scripts/tool.sh licences -licenses /licenses

# --- ort: ONNX Runtime, held to the sums in scripts/ort.sh ---------------------
FROM ${BASE_IMAGE} AS ort
# pip's own settings, where the network asks for other than the defaults.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_CERT
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates python3-pip
WORKDIR /src
COPY scripts/lib.sh scripts/ort.sh scripts/
RUN scripts/ort.sh \
 && install -d /opt/onnxruntime/lib /licenses/onnxruntime \
 && cp .cache/ort/*/libonnxruntime* /opt/onnxruntime/lib/ \
 && cp .cache/ort/*/LICENSE .cache/ort/*/ThirdPartyNotices.txt /licenses/onnxruntime/

# --- ort-cuda: the same with the CUDA provider, 260 MB ---------------------------
FROM ort AS ort-cuda
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_CERT
RUN ORT_FLAVOUR=gpu scripts/ort.sh \
 && rm /opt/onnxruntime/lib/* \
 && cp .cache/gpu/ort/*/libonnxruntime* /opt/onnxruntime/lib/ \
 && cp .cache/gpu/ort/*/LICENSE .cache/gpu/ort/*/ThirdPartyNotices.txt /licenses/onnxruntime/

# --- models: those of the build argument --------------------------------------
FROM build AS models
ARG MODELS="ppocr-v4-mobile"
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_CERT
RUN mkdir /models \
 && if [ -n "$MODELS" ]; then \
      apt-get update \
      && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3-pip \
      && bin/rewardloop models pull --dir /models $MODELS; \
    fi

# --- cuda: what runtime is, with ONNX Runtime's CUDA provider on CUDA's own image --
FROM ${CUDA_IMAGE} AS cuda
# As in runtime, the last stage, where the reasons stand.
ARG RUNTIME_PACKAGES=""
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      ca-certificates ffmpeg libstdc++6 libtesseract5 tesseract-ocr ${RUNTIME_PACKAGES} \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/apt /var/log/dpkg.log \
 && useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/rewardloop \
      --shell /usr/sbin/nologin rewardloop \
 && install -d -o 10001 -g 10001 /var/lib/rewardloop /var/lib/rewardloop/store
COPY --from=build /licenses /licenses
COPY --from=ort-cuda /licenses /licenses
COPY --from=ort-cuda /opt/onnxruntime /opt/onnxruntime
COPY --from=models --chown=10001:10001 /models /var/lib/rewardloop/models
COPY --from=build /src/bin/rewardloop /usr/local/bin/rewardloop
# All cards that the container is given; utility is nvidia-smi.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENV REWARDLOOP_MODELS=/var/lib/rewardloop/models REWARDLOOP_STORE=/var/lib/rewardloop/store
ENV OMP_THREAD_LIMIT=1
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
ARG SOURCE=""
LABEL org.opencontainers.image.title="rewardloop" \
      org.opencontainers.image.description="Reward server for RL training of image, video and multimodal models, with CUDA" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}"
USER 10001:10001
WORKDIR /var/lib/rewardloop
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET /healthz HTTP/1.0\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [ \"$status\" = 200 ]"]
ENTRYPOINT ["rewardloop"]
CMD ["serve", "-c", "/etc/rewardloop/config.yaml", "--listen", "0.0.0.0:8080", "--token-file", "/etc/rewardloop/token"]

# --- runtime: the binary, ONNX Runtime, Tesseract, nothing that compiles -------
FROM ${BASE_IMAGE} AS runtime
# Further Debian packages, e.g. python3 for Python reward functions.
ARG RUNTIME_PACKAGES=""
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      ca-certificates ffmpeg libstdc++6 libtesseract5 tesseract-ocr ${RUNTIME_PACKAGES} \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/apt /var/log/dpkg.log \
 && useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/rewardloop \
      --shell /usr/sbin/nologin rewardloop \
 && install -d -o 10001 -g 10001 /var/lib/rewardloop /var/lib/rewardloop/store
COPY --from=build /licenses /licenses
COPY --from=ort /licenses /licenses
COPY --from=ort /opt/onnxruntime /opt/onnxruntime
COPY --from=models --chown=10001:10001 /models /var/lib/rewardloop/models
COPY --from=build /src/bin/rewardloop /usr/local/bin/rewardloop
ENV REWARDLOOP_MODELS=/var/lib/rewardloop/models REWARDLOOP_STORE=/var/lib/rewardloop/store
# One OpenMP thread for each Tesseract call: the concurrency is rewardloop's.
ENV OMP_THREAD_LIMIT=1
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
ARG SOURCE=""
LABEL org.opencontainers.image.title="rewardloop" \
      org.opencontainers.image.description="Reward server for RL training of image, video and multimodal models" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}"
USER 10001:10001
WORKDIR /var/lib/rewardloop
EXPOSE 8080
# /healthz over bash's own /dev/tcp: the image holds no HTTP client. With TLS or
# another port, give docker run a --health-cmd of your own.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET /healthz HTTP/1.0\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [ \"$status\" = 200 ]"]
ENTRYPOINT ["rewardloop"]
# A public address without a token is refused, so the token is part of it.
CMD ["serve", "-c", "/etc/rewardloop/config.yaml", "--listen", "0.0.0.0:8080", "--token-file", "/etc/rewardloop/token"]
