# syntax=docker/dockerfile:1

# The same image as "make image" packs: one static binary, no shell, not root.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS=linux
ARG TARGETARCH
ARG VERSION=dev
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /out/ringmaster ./cmd/ringmaster

FROM scratch
COPY --from=build --chmod=0755 /out/ringmaster /ringmaster
ENV PATH=/
USER 65532:65532
ENTRYPOINT ["/ringmaster"]
