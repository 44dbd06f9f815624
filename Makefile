# "make help" lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

BIN := $(CURDIR)/bin
TOOLS := $(BIN)/tools
export PATH := $(TOOLS):$(PATH)

# The image that is built and run; the version that the binary reports.
IMAGE ?= localhost/ringmaster:dev
IMAGE_TAR := $(BIN)/ringmaster-image.tar
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS = -s -w -X main.version=$(VERSION)

# Where demo and e2e run: local (hack/cluster, needs root), kind (needs Docker) or current (your current kube context).
CLUSTER ?= $(shell hack/kube default)

# The race detector needs a C compiler.
RACE ?= $(if $(shell command -v "$$(go env CC)" 2>/dev/null),-race)

BENCH ?=
FUZZTIME ?= 5000x
SOAKTIME ?= 10m
FAULTS ?= 30m

##@ Try it

.PHONY: demo
demo: $(IMAGE_TAR) $(TOOLS)/helm ## a cluster, the operator, a topic and consumers, built and started; runs again without harm
	CLUSTER=$(CLUSTER) IMAGE=$(IMAGE) IMAGE_TAR=$(IMAGE_TAR) hack/demo/demo.sh up

.PHONY: demo-down
demo-down: ## remove what "make demo" started
	CLUSTER=$(CLUSTER) hack/demo/demo.sh down

##@ Check it

.PHONY: test
test: ## vet, unit tests and the envtest suite (race detector on where there is a C compiler)
	@echo "test: go vet"
	@go vet ./...
	@assets=$$(hack/envtest-assets.sh); \
	echo "test: go test $(RACE) ./... with the API server in $$assets"; \
	KUBEBUILDER_ASSETS="$$assets" go test $(RACE) -timeout 15m ./...
	@echo "test: the broker's suite on Redis"
	@hack/on-redis.sh go test -timeout 15m -count 1 ./broker/server
	@echo "test: two million random steps of the coordinator, pods, operators and brokers, without the race detector (make soak takes new seeds)"
	@go test -timeout 15m -count 1 -run '^TestRandom(Runs|Worlds)$$' ./broker/coordinator
	@echo "test: hack/tools, test/bench, test/conformance, test/rebalance"
	@go -C hack/tools test ./img
	@go -C test/bench test ./...
	@go -C test/rebalance test ./...
	@go -C test/conformance test . ./brokers ./check ./groups ./page ./suites

.PHONY: models
models: ## the model of the handoff, checked exhaustively with Spin, and mutations of it for which the check has to fail (docs/models)
	docs/models/check.sh

.PHONY: e2e
e2e: $(IMAGE_TAR) $(TOOLS)/helm $(TOOLS)/img ## the end-to-end suite on a real cluster (CLUSTER=local|kind|current; KEEP=1 leaves the cluster up)
	CLUSTER=$(CLUSTER) IMAGE=$(IMAGE) IMAGE_TAR=$(IMAGE_TAR) hack/e2e.sh

.PHONY: e2e-faults
e2e-faults: $(IMAGE_TAR) $(TOOLS)/helm $(TOOLS)/img ## the end-to-end suite's faults alone, for FAULTS (30m; FAULTS_SEED=N for an order that was printed; CLUSTER=local)
	CLUSTER=$(CLUSTER) IMAGE=$(IMAGE) IMAGE_TAR=$(IMAGE_TAR) FAULTS=$(FAULTS) E2E_TIMEOUT=3h E2E_ARGS='-ginkgo.label-filter=faults' hack/e2e.sh

.PHONY: lint
lint: $(TOOLS)/golangci-lint $(TOOLS)/helm ## golangci-lint, helm lint, shellcheck where it is installed
	golangci-lint run
	cd hack/tools && golangci-lint run ./img/...
	cd test/bench && golangci-lint run
	cd test/rebalance && golangci-lint run
	cd test/clients && golangci-lint run
	cd test/conformance && golangci-lint run
	for program in coredns etcd pause provisioner; do (cd hack/cluster/src/$$program && golangci-lint run); done
	helm lint --strict charts/ringmaster
	hack/lint-shell.sh

.PHONY: verify
verify: ## fail if a file is not formatted, a generated file is out of date or go.mod is not tidy
	hack/verify.sh

.PHONY: cover
cover: ## the unit tests' and the envtest suite's coverage, in cover.out
	KUBEBUILDER_ASSETS="$$(hack/envtest-assets.sh)" go test -timeout 15m -coverpkg=./... -coverprofile=cover.out ./...
	go tool cover -func=cover.out | tail -n 1

.PHONY: bench
bench: ## this broker beside Kafka, kfake, Redis, NATS and the disk, written to docs/benchmarks.md (QUICK=1; BENCH=REGEXP of works, rebalance for groups alone; test/bench/bench.sh says more)
	@BENCH='$(value BENCH)' VERSION='$(VERSION)' test/bench/bench.sh

.PHONY: rebalance
rebalance: $(IMAGE_TAR) $(TOOLS)/helm $(TOOLS)/img ## rebalances on the local cluster beside Kafka's, written to docs/rebalance.md (QUICK=1; KINDS=NAME,...; test/rebalance/rebalance.sh says more)
	IMAGE=$(IMAGE) IMAGE_TAR=$(IMAGE_TAR) test/rebalance/rebalance.sh

.PHONY: microbench
microbench: ## the packages' own benchmarks (BENCH=REGEXP picks some)
	go test -run '^$$' -bench '$(or $(value BENCH),.)' -benchmem ./broker/...

.PHONY: assigners
assigners: ## the assigners beside their peers: plans, times and allocations, written to docs/assigners.md
	go test ./broker/assigner -run '^TestTheManualsTables$$' -update

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME inputs (5000x; or a time, such as 1m)
	hack/fuzz.sh $(FUZZTIME)

.PHONY: soak
soak: ## the crash tests and random runs, with new seeds over and over, for SOAKTIME (10m)
	hack/soak.sh $(SOAKTIME)

.PHONY: conformance
conformance: build ## unmodified clients against one broker, three, and two that share a Redis, written to docs/clients.md (CLIENTS=NAME,... picks some; BOOTSTRAP=HOST:PORT runs them against any brokers; HELP=1 says more)
	@assets=$$(hack/envtest-assets.sh); \
	go -C test/conformance build -o $(BIN)/conformance .; \
	KUBEBUILDER_ASSETS="$$assets" $(BIN)/conformance $(if $(HELP),--help) $(if $(CLIENTS),--clients $(CLIENTS)) $(if $(BOOTSTRAP),--bootstrap $(BOOTSTRAP)) $(CONFORMANCE_ARGS)

.PHONY: heartbeats
heartbeats: build ## how soon unmodified clients of managed groups hear of a change, written to docs/heartbeats.md (CLIENTS=NAME,... picks some; HELP=1 says more)
	@assets=$$(hack/envtest-assets.sh); \
	go -C test/conformance build -o $(BIN)/conformance .; \
	KUBEBUILDER_ASSETS="$$assets" $(BIN)/conformance heartbeats $(if $(HELP),--help) $(if $(CLIENTS),--clients $(CLIENTS)) $(HEARTBEATS_ARGS)

.PHONY: conformance-suites
conformance-suites: build ## the tests that the authors of clients wrote, written to docs/clients.md (SUITES=NAME,... picks some; HELP=1 says more)
	@assets=$$(hack/envtest-assets.sh); \
	go -C test/conformance build -o $(BIN)/conformance-suites ./suites; \
	KUBEBUILDER_ASSETS="$$assets" $(BIN)/conformance-suites $(if $(HELP),--help) $(if $(SUITES),--suites $(SUITES)) $(SUITES_ARGS)

##@ Build it

.PHONY: build
build: ## bin/ringmaster, static
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ringmaster ./cmd/ringmaster

.PHONY: image
image: $(IMAGE_TAR) ## bin/ringmaster-image.tar, the Dockerfile's image packed without a container engine

.PHONY: $(IMAGE_TAR)
$(IMAGE_TAR): $(TOOLS)/img
	@echo "image: building $(IMAGE) for linux/$$(go env GOARCH)"
	@CGO_ENABLED=0 GOOS=linux go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/image/ringmaster ./cmd/ringmaster
	@img -arch "$$(go env GOARCH)" $(IMAGE_TAR) $(IMAGE) $(BIN)/image/ringmaster:/ringmaster -- /ringmaster
	@echo "image: $(IMAGE_TAR)"

.PHONY: generate
generate: ## api/v1alpha1/zz_generated.deepcopy.go
	go tool controller-gen object paths=./api/...

.PHONY: manifests
manifests: ## the CRDs and the operator's role, in config/ and charts/ringmaster/
	go tool controller-gen crd paths=./api/... output:crd:artifacts:config=config/crd/bases
	go tool controller-gen rbac:roleName=ringmaster-operator paths=./controllers/... output:rbac:artifacts:config=config/rbac
	mkdir -p charts/ringmaster/files/crds
	rm -f charts/ringmaster/files/crds/*.yaml
	cp config/crd/bases/*.yaml charts/ringmaster/files/crds/
	cp config/rbac/role.yaml charts/ringmaster/files/role.yaml

.PHONY: clean
clean: ## remove bin/ and cover.out
	rm -rf $(BIN) cover.out

# Tools are built once, from the versions that hack/tools/go.mod pins.
tool = @echo "tools: building $(@F)"; go -C hack/tools build -trimpath -o $@
$(TOOLS)/golangci-lint: hack/tools/go.mod hack/tools/go.sum
	$(tool) github.com/golangci/golangci-lint/v2/cmd/golangci-lint
.PHONY: helm
helm: $(TOOLS)/helm ## builds bin/tools/helm

$(TOOLS)/helm: hack/tools/go.mod hack/tools/go.sum
	$(tool) helm.sh/helm/v4/cmd/helm
$(TOOLS)/kind: hack/tools/go.mod hack/tools/go.sum
	$(tool) sigs.k8s.io/kind
$(TOOLS)/setup-envtest: hack/tools/go.mod hack/tools/go.sum
	$(tool) sigs.k8s.io/controller-runtime/tools/setup-envtest
$(TOOLS)/img: hack/tools/go.mod hack/tools/go.sum hack/tools/img/main.go
	$(tool) ./img

.PHONY: help
help: ## this list
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
