# RackPulse. 'make' lists the targets.
SHELL := /bin/bash
GO ?= go
BIN := build/rackpulse
CACHE := $(or $(RACKPULSE_TOOLS),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rackpulse/tools)
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT := $(shell git rev-parse --short HEAD 2>/dev/null)
V := github.com/prometheus/common/version
LDFLAGS := -s -w -X $(V).Version=$(VERSION) -X $(V).Revision=$(COMMIT)

.PHONY: help run build test lint deps deps-e2e generate e2e bench bench-peer bench-incidents fakedcgm fakenvml clean
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | column -t -s $$'\t'

run: build ## build and start the simulated hall, all in one process
	$(BIN) standalone --simulate

build: ## build the binary
	@mkdir -p build
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/rackpulse

test: deps ## install what the tests need, then run them with the race detector
	$(GO) vet ./...
	$(GO) vet -tags e2e ./cmd/rackpulse
	$(GO) test -race -timeout 20m ./...
	$(GO) test -run 'Hostile|Scenarios|Federation' ./rules # too slow, or meant without the detector

lint: ## go vet, staticcheck, formatting, budgets, generated files
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags e2e ./cmd/rackpulse
	$(GO) tool -modfile=tools/lint/go.mod staticcheck ./...
	$(GO) test -count=1 . ./rules ./alerting ./dashboards

deps: ## Debian packages and the real servers that tests run against
	@tools/deps.sh $(CACHE)

generate: build ## rules, lists of parts, metric names, protobuf
	$(BIN) rules build
	$(BIN) parts --write README.md
	cd tools/protobuf && $(GO) build -o ../../build/tools/ tool
	PATH="$(CURDIR)/build/tools:$$PATH" $(GO) generate ./lease/...

deps-e2e: deps
	@tools/deps.sh $(CACHE) e2e

e2e: deps-e2e build fakedcgm fakenvml ## the whole chain with a real Prometheus, Alertmanager and node_exporter
	$(GO) test -tags e2e -count=1 -timeout 25m -v ./cmd/rackpulse -run E2E

bench-peer: build fakedcgm ## the agent beside dcgm-exporter over the same DCGM; RACKPULSE_PEER names its binary
	$(GO) test -tags e2e -run "^$$" -bench PeerScrape -benchtime 6x -timeout 30m ./cmd/rackpulse
	$(GO) test -tags e2e -run "^$$" -bench PeerSteady -benchtime 40x -timeout 30m ./cmd/rackpulse

bench: build fakedcgm ## scrape, beat, rules and engine benchmarks; the whole agent with its child
	$(GO) test -run "^$$" -bench . -benchmem ./collector ./lease ./rules ./engine ./sim ./web
	$(GO) test -run "^$$" -bench SNMPDevices -benchtime 1x ./collector/facility
	$(GO) test -tags e2e -run "^$$" -bench Agent -benchtime 400x ./cmd/rackpulse

SEEDS ?= 100-199
bench-incidents: ## the incident benchmark in virtual time (docs/incidents.md); SEEDS=0-99 to tune
	@mkdir -p build
	$(GO) test -count=1 -timeout 12h -v ./bench/incidents -run '^TestBenchmark$$' -incidents.seeds $(SEEDS) -incidents.out $(CURDIR)/build/incidents.md

clean: ## remove what was built
	rm -rf build

include testdata/fakedcgm/Makefile testdata/fakenvml/Makefile
