# make lab     everything: set up, build, start a pool with a node and JupyterLab, open the quickstart
# make test    everything: set up, build, run the tests of every day
# make build   set up and build only
# make help    the other targets

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := build/stamps
JOBS ?= $(shell nproc)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD := 1
export YARN_ENABLE_TELEMETRY := 0
# Otherwise each of thousands of processes compiles the project's Python anew.
unexport PYTHONDONTWRITEBYTECODE

# Node.js sets a pipe that it writes to non-blocking, for everybody who shares it: on a slow one make itself failed with
# "write error". So what runs on Node.js gets a pipe of its own.
OF_NODE := 2>&1 | cat

say = @printf '\n\033[1m== %s\033[0m\n' "$(1)"

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-20s %s\n", $$1, $$2}'

# ---------------------------------------------------------------- set-up

$(STAMPS)/system: .ci/system-packages
	$(call say,Checking system packages)
	@mkdir -p $(STAMPS)
	@bash .ci/system-packages build
	@touch $@

# Browser, doctest and the like: `make lab` needs none of them.
$(STAMPS)/system-tests: .ci/system-packages
	$(call say,Checking system packages of tests)
	@mkdir -p $(STAMPS)
	@bash .ci/system-packages build tests
	@touch $@

$(STAMPS)/venv: requirements.lock
	$(call say,Virtual environment .venv (about two minutes the first time))
	@mkdir -p $(STAMPS)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version) if sys.version_info < (3, 11) else None'
	$(BIN)/python .ci/install_packages.py requirements.lock
	$(BIN)/python -m pip check
	@touch $@

# pip would compile with one processor, while nothing else can run. This goes beside the native build.
# A package may bring files that are no Python of this version: what is imported is compiled then in any case.
$(STAMPS)/bytecode: $(STAMPS)/venv
	$(call say,Compiling Python packages)
	$(BIN)/python -m compileall -q -j $(JOBS) $(VENV)/lib || true
	@touch $@

$(STAMPS)/proto: $(STAMPS)/venv server/gpupool/proto/gpupool/v1/pool.proto server/gpupool/proto/generate.py
	$(call say,gRPC messages)
	cd server && ../$(BIN)/python -m gpupool.proto.generate
	@touch $@

NATIVE_SOURCES := $(shell find src CMakeLists.txt -type f -not -name '*.md' -not -path '*/__pycache__/*' 2>/dev/null)
$(STAMPS)/native: $(STAMPS)/system $(STAMPS)/venv $(NATIVE_SOURCES)
	$(call say,Native build: interposition runtime and worker and software GPU (takes minutes the first time))
	cmake -S . -B build/native -DCMAKE_BUILD_TYPE=Release -DPython3_EXECUTABLE=$(CURDIR)/$(BIN)/python -DCMAKE_INSTALL_PREFIX=$(CURDIR)/server/gpupool/_native > build/cmake.log || (cat build/cmake.log; exit 1)
	cmake --build build/native -j $(JOBS) --target product
	cmake --install build/native --component product > build/cmake-install.log
	@touch $@

# Native tests, fuzz targets and programs that measure are as much again to compile: `make lab` needs none of them.
$(STAMPS)/native-tests: $(STAMPS)/system-tests $(STAMPS)/native
	$(call say,Native build: tests)
	cmake --build build/native -j $(JOBS)
	cmake --install build/native > build/cmake-install.log
	@touch $@

$(STAMPS)/node: package.json yarn.lock $(STAMPS)/venv
	$(call say,Front-end packages)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/jlpm install --immutable $(OF_NODE)
	@touch $@

# Of Galata's own tree (590 MB) what its helpers load: JupyterLab's packages are those of $(STAMPS)/node.
$(STAMPS)/galata: ui-tests/galata/package.json ui-tests/galata/yarn.lock $(STAMPS)/node
	$(call say,Packages of the browser tests)
	cd ui-tests/galata && PATH="$(CURDIR)/$(BIN):$$PATH" $(CURDIR)/$(BIN)/jlpm install --immutable $(OF_NODE)
	@touch $@

FRONTEND_SOURCES := $(shell find labextension -type f -not -path '*/node_modules/*' -not -path '*/lib/*' -not -name '*.tsbuildinfo' -not -path '*/api/request.ts' -not -path '*/api/reasons.ts' -not -path '*/api/types.ts' 2>/dev/null) tsconfig.json package.json $(wildcard server/gpupool/request/*.py jupyter_gpupool/server/rest/*.py) server/gpupool/client/session/record.py server/gpupool/sentences/reasons.py server/gpupool/sentences/typescript.py server/gpupool/generated.py server/gpupool/shares.py
$(STAMPS)/frontend: $(STAMPS)/node $(FRONTEND_SOURCES)
	$(call say,Front end)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/jlpm build:prod $(OF_NODE)
	@touch $@

$(STAMPS)/install: pyproject.toml hatch_build.py $(STAMPS)/venv $(STAMPS)/frontend
	$(call say,Installing jupyter-gpupool into .venv)
	@$(BIN)/python .ci/link_labextension.py --remove
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	$(BIN)/python .ci/link_labextension.py
	@touch $@

.PHONY: build
build: $(STAMPS)/system $(STAMPS)/venv $(STAMPS)/proto $(STAMPS)/native $(STAMPS)/frontend $(STAMPS)/install $(STAMPS)/bytecode ## set up and build what runs

.PHONY: build-tests
build-tests: $(STAMPS)/system-tests build $(STAMPS)/native-tests ## the same, and what tests and measures

# ---------------------------------------------------------------- the main job

.PHONY: lab
lab: build ## start a pool, a node and JupyterLab with the quickstart notebook
	@exec $(BIN)/gpupool lab --notebook examples/quickstart.ipynb $(LAB_ARGS)

# ---------------------------------------------------------------- tests

# These tests kill real processes and wait for real timers on whatever machine this is: a stall of the machine may fail
# one. It is run again and reported as rerun; a test that is wrong fails every time.
REAL_TIME := --reruns 2 --reruns-delay 3 -p tests.support.rerun_reasons

# Each file in one process, those first that take the longest.
SIDE_BY_SIDE := --dist loadfile --no-loadscope-reorder -p tests.support.longest_first
# Tests of real processes wait more than they compute: eight at a time keep two processors busy. TEST_JOBS=1 is one
# after the other. Tests marked `serial` measure, and have the machine for themselves.
TEST_JOBS ?= 8
# Each with a browser and a JupyterLab of its own; they wait more than they compute, too.
BROWSER_JOBS ?= 3

.PHONY: test
# What comes first waits for a network or keeps one processor busy, and has no timers: two at a time. Not the system's
# packages: only one at a time may install them.
test: $(STAMPS)/system-tests $(STAMPS)/system ## set up and pass every test
	@$(MAKE) --no-print-directory -j 2 build-tests $(STAMPS)/galata
	@$(MAKE) --no-print-directory --output-sync=target -j 2 lint test-frontend
	@$(MAKE) --no-print-directory test-native
	@$(MAKE) --no-print-directory test-python
	@$(MAKE) --no-print-directory test-browser

.PHONY: lint
lint: build ## ruff, mypy, clang-format, documentation
	$(call say,Lint and types)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python .ci/check_clang_format.py
	$(BIN)/python .ci/check_docs.py
	$(BIN)/python .ci/check_prose.py

.PHONY: format
format: ## rewrite sources in the project's formats
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python .ci/check_clang_format.py --fix

.PHONY: lint-native
lint-native: $(STAMPS)/native ## C++ by clang: what each mutex guards; takes minutes
	$(call say,Lint of the native code)
	$(BIN)/python .ci/check_native.py build/native

.PHONY: tidy-native
tidy-native: $(STAMPS)/native ## C++ by clang-tidy: names and slips (.clang-tidy); ONLY=src/wire for a part of it
	$(call say,clang-tidy over the native code)
	$(BIN)/python .ci/check_native.py build/native --tidy --only "$(ONLY)"

.PHONY: test-native
test-native: build-tests ## C++ tests, plain
	$(call say,Native tests)
	ctest --test-dir build/native --output-on-failure -j $$((2 * $(JOBS))) -LE measures
	$(call say,Native tests: measurements)
	ctest --test-dir build/native --output-on-failure -L measures --repeat until-pass:3

.PHONY: test-sanitize
test-sanitize: $(STAMPS)/system-tests build ## C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(call say,Native tests with sanitizers)
	cmake -S . -B build/sanitize -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g1" -DGPUPOOL_SANITIZE=ON -DPython3_EXECUTABLE=$(CURDIR)/$(BIN)/python > build/cmake-sanitize.log
	cmake --build build/sanitize -j $(JOBS)
	$(BIN)/python .ci/check_native.py build/sanitize
	ctest --test-dir build/sanitize --output-on-failure -j $(JOBS) -LE measures

.PHONY: test-sanitize-programs
test-sanitize-programs: test-sanitize ## programs on a worker, both ends under AddressSanitizer and UndefinedBehaviorSanitizer
	cmake --install build/sanitize --prefix build/sanitize/installed > build/cmake-sanitize-install.log
	GPUPOOL_NATIVE_DIR=$(CURDIR)/build/sanitize/installed GPUPOOL_SANITIZED_BUILD=$(CURDIR)/build/sanitize $(BIN)/python -m pytest tests/sanitize $(PYTEST_ARGS)

# Needs clang with its sanitizer runtimes.
FUZZ_SECONDS ?= 60
.PHONY: fuzz
fuzz: $(STAMPS)/system-tests build ## every reader of foreign bytes under libFuzzer with sanitizers, FUZZ_SECONDS (60) each
	$(call say,Fuzzing: $(FUZZ_SECONDS) s for each target; inputs and findings in build/fuzz/work)
	cmake -S . -B build/fuzz -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g1" -DGPUPOOL_FUZZ=ON -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DPython3_EXECUTABLE=$(CURDIR)/$(BIN)/python > build/cmake-fuzz.log
	cmake --build build/fuzz -j $(JOBS) --target fuzz_targets
	src/fuzz/run.sh build/fuzz/src/fuzz build/fuzz/work $(FUZZ_SECONDS)

.PHONY: fuzz-keep
fuzz-keep: $(STAMPS)/venv ## keep INPUTS (files or folders) of the fuzz TARGET, which `make test` replays from then on
	$(BIN)/python src/fuzz/corpus.py add $(TARGET) $(INPUTS)

PROGRAMS ?= 100000
FIRST ?= 1
.PHONY: softgpu-fuzz
softgpu-fuzz: build ## PROGRAMS (100000) random PTX programs on the software GPU and on a slow reference, from seed FIRST (1)
	$(call say,Software GPU: $(PROGRAMS) random programs from seed $(FIRST))
	cmake --build build/native -j $(JOBS) --target softgpu_fuzz
	GPUPOOL_SOFTGPU_JIT_COMPILER=$(CURDIR)/build/native/softgpu/gpupool-softgpu-jit src/softgpu/differential/run.sh build/native/src/softgpu/differential/softgpu_fuzz $(PROGRAMS) $(FIRST) $(JOBS)

.PHONY: test-tsan
test-tsan: $(STAMPS)/system-tests build ## C++ tests of what several threads share, under ThreadSanitizer
	$(call say,Native tests with ThreadSanitizer)
	cmake -S . -B build/tsan -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g1" -DGPUPOOL_SANITIZE=thread -DPython3_EXECUTABLE=$(CURDIR)/$(BIN)/python > build/cmake-tsan.log
	cmake --build build/tsan -j $(JOBS) --target threaded_tests
	TSAN_OPTIONS=halt_on_error=1 ctest --test-dir build/tsan --output-on-failure --no-tests=error -j $(JOBS) -R "$$(cat build/tsan/threaded_tests)"

.PHONY: test-tsan-programs
test-tsan-programs: test-tsan ## programs on a worker, math libraries in four threads among them, both ends under ThreadSanitizer
	cmake --build build/tsan -j $(JOBS) --target product cudart12_test cudart13_test
	cmake --install build/tsan --component product --prefix build/tsan/installed > build/cmake-tsan-install.log
	GPUPOOL_NATIVE_DIR=$(CURDIR)/build/tsan/installed GPUPOOL_SANITIZED_BUILD=$(CURDIR)/build/tsan $(BIN)/python -m pytest tests/sanitize $(PYTEST_ARGS)

# As on a processor without AVX, in both tiers.
PORTABLE := GPUPOOL_NATIVE_DIR=$(CURDIR)/build/portable/installed
.PHONY: test-portable
test-portable: $(STAMPS)/system-tests build ## software GPU built without AVX, in both tiers: its C++ tests, values and programs
	$(call say,Software GPU without AVX)
	cmake -S . -B build/portable -DCMAKE_BUILD_TYPE=Release -DGPUPOOL_SOFTGPU_PORTABLE=ON -DPython3_EXECUTABLE=$(CURDIR)/$(BIN)/python -DCMAKE_INSTALL_PREFIX=$(CURDIR)/build/portable/installed > build/cmake-portable.log
	cmake --build build/portable -j $(JOBS)
	cmake --install build/portable > build/cmake-portable-install.log
	$(BIN)/python .ci/check_no_avx.py build/portable/installed/softgpu
	ctest --test-dir build/portable --output-on-failure -j $(JOBS) -R '^softgpu' -E 'engine_avx'
	$(PORTABLE) $(BIN)/python -m pytest tests/softgpu_values tests/integration -k softgpu -n $(TEST_JOBS) $(SIDE_BY_SIDE) $(REAL_TIME) $(PYTEST_ARGS)
	$(PORTABLE) GPUPOOL_SOFTGPU_JIT=always GPUPOOL_SOFTGPU_JIT_CACHE=off $(BIN)/python -m pytest tests/softgpu_values -n $(TEST_JOBS) $(SIDE_BY_SIDE) $(PYTEST_ARGS)

.PHONY: test-frontend
test-frontend: build-tests $(STAMPS)/galata ## TypeScript unit tests and lint
	$(call say,Front-end tests)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/jlpm lint:check $(OF_NODE)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/jlpm lint:galata $(OF_NODE)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/jlpm test $(OF_NODE)

REAL_TESTS := tests/property/test_session_machine.py tests/softgpu_values tests/libraries tests/integration tests/documentation

.PHONY: test-python
# While unit tests leave a part of the processors alone, pytest writes the bytecode of the others, which eight processes would
# do at the same time.
test-python: build-tests ## unit, property, integration tests
	$(call say,Python tests: unit and property and architecture)
	@$(BIN)/python -m pytest --collect-only -q -p no:cacheprovider $(REAL_TESTS) > build/collect.log 2>&1 &
	$(BIN)/python -m pytest tests/property tests/unit tests/architecture --ignore tests/property/test_session_machine.py -n 3 $(SIDE_BY_SIDE) $(PYTEST_ARGS)
	$(call say,Python tests: real processes and sockets)
	$(BIN)/python -m pytest $(REAL_TESTS) -m "not serial" -n $(TEST_JOBS) $(SIDE_BY_SIDE) $(REAL_TIME) $(PYTEST_ARGS)
	$(call say,Python tests: measurements)
	$(BIN)/python -m pytest tests/integration -m serial $(REAL_TIME) $(PYTEST_ARGS)

.PHONY: test-browser
test-browser: build-tests $(STAMPS)/galata ## the main job in a real JupyterLab in a real browser
	$(call say,Browser tests: Python)
	$(BIN)/python -m pytest ui-tests -n $(BROWSER_JOBS) $(SIDE_BY_SIDE) $(REAL_TIME) $(PYTEST_ARGS)
	$(call say,Browser tests: Galata)
	cd ui-tests/galata && BROWSER_JOBS=$(BROWSER_JOBS) GPUPOOL_TEST_PYTHON=$(CURDIR)/$(BIN)/python node_modules/.bin/playwright test $(GALATA_ARGS) $(OF_NODE)

.PHONY: snapshots
snapshots: build-tests $(STAMPS)/galata ## the pictures that browser tests compare with, made anew with the fonts of this machine
	cd ui-tests/galata && GPUPOOL_TEST_PYTHON=$(CURDIR)/$(BIN)/python node_modules/.bin/playwright test snapshots --update-snapshots $(OF_NODE)

# Needs a package index and npm: JupyterHub and its proxy are no part of the build environment.
HUB := build/hub
$(HUB)/installed: pyproject.toml $(STAMPS)/venv
	$(call say,JupyterHub and its proxy into $(HUB))
	@mkdir -p $(HUB)
	$(BIN)/python -m venv --clear $(HUB)/venv
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' > "$$($(HUB)/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/build_environment.pth"
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["hub"], sep="\n")' > $(HUB)/requirements.txt
	$(HUB)/venv/bin/python -m pip install --quiet -r $(HUB)/requirements.txt
	npm install --silent --no-audit --no-fund --prefix $(HUB)/proxy configurable-http-proxy@^5
	@touch $@

.PHONY: hub-check
hub-check: build-tests $(HUB)/installed ## on a real JupyterHub: users, groups, an administrator and the culler; needs a network
	GPUPOOL_HUB_PROXY=$(CURDIR)/$(HUB)/proxy/node_modules/.bin/configurable-http-proxy $(HUB)/venv/bin/python -m pytest tests/hub $(PYTEST_ARGS)

.PHONY: wheel
wheel: build ## the wheel for machines like this one, in build/wheel
	rm -rf build/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation -w build/wheel .
	@ls build/wheel/*.whl

.PHONY: wheel-check
wheel-check: wheel ## the wheel in a fresh environment with no Node: complete, and on by itself; needs a package index
	$(BIN)/python .ci/wheel_check.py

.PHONY: release
release: build ## wheel, source distribution, hashes, bill of materials and container recipes in dist/, each installed and used; takes minutes
	$(call say,Release)
	$(BIN)/python .ci/release.py
	$(call say,Each installed into an empty environment (the source distribution is compiled))
	$(BIN)/python -m pytest tests/release $(PYTEST_ARGS)

.PHONY: first-cell
first-cell: $(STAMPS)/system-tests build ## from an empty environment with the wheel of `make release`: commands and seconds to the first GPU cell, in a browser
	@$(BIN)/python .ci/first_cell.py dist/jupyter_gpupool-*.whl --browser

.PHONY: test-browser-gib
test-browser-gib: build-tests ## notebooks that outlive their leases in a real browser, with a GiB of device arrays
	GPUPOOL_ARRAYS_MIB=1024 $(BIN)/python -m pytest ui-tests/test_outlives_lease.py $(PYTEST_ARGS)

.PHONY: test-deaths
test-deaths: build-tests ## clients and workers killed at random moments, 200 times each
	GPUPOOL_DEATHS=200 $(BIN)/python -m pytest tests/integration/test_sudden_deaths.py $(PYTEST_ARGS)

.PHONY: crash-points
crash-points: build-tests ## the pool server killed at 100 random points of its decisions, 20 of them with PostgreSQL
	GPUPOOL_CRASH_POINTS=80 GPUPOOL_CRASH_POINTS_POSTGRESQL=20 $(BIN)/python -m pytest -s tests/integration/test_crash_points.py $(PYTEST_ARGS)

.PHONY: standby-check
standby-check: build-tests ## a standby takes over in the middle of 1000 attaches, and after 200 random deaths (a quarter of an hour)
	GPUPOOL_STANDBY_ATTACHES=1000 $(BIN)/python -m pytest -s tests/integration/test_standby.py -k ManyAttaches $(PYTEST_ARGS)
	GPUPOOL_STANDBY_KILLS=200 $(BIN)/python -m pytest -s tests/integration/test_standby_kills.py $(PYTEST_ARGS)

.PHONY: load-check
load-check: build-tests ## 10,000 ask a full pool at once: all are queued in order, and all served in order
	GPUPOOL_MANY=10000 $(BIN)/python -m pytest -s --timeout 1200 tests/integration/test_many_requests.py $(PYTEST_ARGS)

# Reproduces one story with GPUPOOL_MACHINE_SEED; a failure prints which.
STEPS ?= 100000
.PHONY: test-session-machine
test-session-machine: build-tests ## sessions on real processes against a model of every byte, for STEPS (100000) steps
	GPUPOOL_MACHINE_STEPS=$(STEPS) $(BIN)/python -m pytest -s tests/property/test_session_machine.py $(PYTEST_ARGS)

.PHONY: test-outage
test-outage: build-tests ## training goes on after 20 seconds without a network
	GPUPOOL_OUTAGE_SECONDS=20 $(BIN)/python -m pytest tests/integration/test_broken_connections.py -k gone_for_a_while $(PYTEST_ARGS)

.PHONY: slurm-check
slurm-check: $(STAMPS)/install ## the provider of nodes on a real Slurm of its own, as root: apt-get install slurmctld slurmd slurm-client munge
	$(BIN)/python -m pytest tests/conformance/provider_slurm.py -s

build/helm/helm: .ci/get_helm.py $(STAMPS)/venv
	$(call say,helm and kubectl into build/helm)
	$(BIN)/python .ci/get_helm.py
	@touch $@

.PHONY: helm-check
helm-check: build-tests build/helm/helm ## the Helm chart with helm itself: rendered, installed, used, upgraded and removed on a cluster for tests
	$(BIN)/python -m pytest tests/integration/test_helm_chart.py tests/integration/test_helm_release.py $(PYTEST_ARGS)

.PHONY: kubernetes-check
kubernetes-check: build-tests build/helm/helm ## the provider of pods and the chart on a real cluster with the project's images: make kubernetes-check KUBECONFIG=<file> [IMAGES=registry.example/] [TAG=0.1.0] [DEVICE_CLASS=<of claims>]
	GPUPOOL_CHECK_KUBECONFIG=$(KUBECONFIG) GPUPOOL_CHECK_IMAGES=$(IMAGES) GPUPOOL_CHECK_TAG=$(or $(TAG),0.1.0) GPUPOOL_CHECK_DEVICE_CLASS=$(DEVICE_CLASS) $(BIN)/python -m pytest tests/conformance/provider_kubernetes.py -s $(PYTEST_ARGS)

.PHONY: conformance-numba
conformance-numba: build-tests ## numba-cuda's own test suite on the software GPU, alone and through client, wire and worker
	$(BIN)/python -m tests.conformance.numba_suite

.PHONY: conformance-cuda-core
conformance-cuda-core: build-tests ## cuda-core's own tests: make conformance-cuda-core CUDA_CORE=<checkout> [GPUPOOL_CUDA_CORE_PYTHON=<python with cuda-core>]
	$(BIN)/python -m tests.conformance.cuda_core_suite $(CUDA_CORE)

.PHONY: conformance-triton-kernels
conformance-triton-kernels: build-tests ## what Triton writes for compute capability 12.0, on the software GPU: make conformance-triton-kernels TRITON_PYTHON=<python with Triton 3>
	$(BIN)/python -m tests.conformance.triton_kernels --python $(TRITON_PYTHON)

.PHONY: conformance-samples
conformance-samples: build-tests ## NVIDIA's CUDA samples through the pool: make conformance-samples SAMPLES=<checkout> [CUDA_HOME=<toolkit>]
	$(BIN)/python -m tests.conformance.cuda_samples $(SAMPLES)

.PHONY: conformance-torch
conformance-torch: build-tests ## PyTorch's control flow on a driver that executes nothing; GPUPOOL_TORCH_PYTHON=<python with PyTorch>
	$(BIN)/python -m tests.conformance.torch_eager

.PHONY: conformance-triton
conformance-triton: build-tests ## Triton's tutorials and language tests: make conformance-triton TRITON=<checkout> GPUPOOL_TORCH_PYTHON=<python with PyTorch>
	$(BIN)/python -m tests.conformance.triton_suite $(TRITON) $(TRITON_ARGS)

.PHONY: conformance-torch-train
conformance-torch-train: build-tests ## eager training beside the CPU; GPUPOOL_TORCH_PYTHON=<python with PyTorch for which a kernel pack was built>
	$(BIN)/python -m tests.conformance.torch_train $(TORCH_ARGS)

.PHONY: conformance-torch-pool
conformance-torch-pool: build-tests ## eager training that is attached late, taken back, moved, cut off; GPUPOOL_TORCH_PYTHON as above
	$(BIN)/python -m tests.conformance.torch_pool

.PHONY: conformance-torch-ddp
conformance-torch-ddp: build-tests ## PyTorch's DDP, two processes with a share each, beside the CPU; GPUPOOL_TORCH_PYTHON as above
	$(BIN)/python -m tests.conformance.torch_ddp

.PHONY: conformance-torch-operators
conformance-torch-operators: build-tests ## a sample of PyTorch's operator database beside the CPU; GPUPOOL_TORCH_PYTHON as above
	$(BIN)/python -m tests.conformance.torch_operators

.PHONY: conformance-torch-suite
conformance-torch-suite: build-tests ## a sample of PyTorch's own tests: make conformance-torch-suite TORCH=<its sources>; GPUPOOL_TORCH_PYTHON as above
	$(BIN)/python -m tests.conformance.torch_suite $(TORCH) $(TORCH_ARGS)

.PHONY: conformance-keras-suite
conformance-keras-suite: build-tests ## a sample of Keras's own tests, which its wheel brings: GPUPOOL_TENSORFLOW_PYTHON=<python with TensorFlow, pytest, pytest-timeout>; KERAS_ARGS="--backend jax" with GPUPOOL_JAX_PYTHON
	$(BIN)/python -m tests.conformance.keras_suite $(KERAS_ARGS)

.PHONY: conformance-torch-compile
conformance-torch-compile: build-tests ## training under torch.compile beside the CPU; GPUPOOL_TORCH_PYTHON=<python with PyTorch>
	$(BIN)/python -m tests.conformance.torch_compile

.PHONY: gpu-check
gpu-check: ## on a machine with a real GPU: check everything that needs real CUDA
	@bash tests/gpu_check/run.sh

# Of the Python on the machine with the GPU.
GPU_CHECK_PYTHON_VERSION ?= 3.12
.PHONY: gpu-check-bundle
gpu-check-bundle: $(STAMPS)/native $(STAMPS)/proto ## what gpu-check needs on a machine without network and compiler, in build/gpu-check-bundle, for Python GPU_CHECK_PYTHON_VERSION (3.12)
	$(BIN)/python -m tests.gpu_check.bundle --python $(GPU_CHECK_PYTHON_VERSION)

.PHONY: bench-wire
bench-wire: build-tests ## blocking calls, posts and copies against raw sockets
	$(BIN)/gpupool bench wire --json

.PHONY: bench-softgpu
bench-softgpu: build-tests ## kernels on the software GPU against C loops built by gcc, and numba's simulator beside it
	$(BIN)/gpupool bench softgpu --json

.PHONY: bench-roundtrips
bench-roundtrips: build-tests ## how often PyTorch waits for the network; GPUPOOL_TORCH_PYTHON=<python with PyTorch>
	$(BIN)/gpupool bench roundtrips --json

.PHONY: replay-plot
replay-plot: build-tests ## the picture in docs/measurements/replay.svg, from the openb trace (about half an hour)
	$(BIN)/gpupool bench replay --series --json > build/replay.json
	$(BIN)/python -m benchmarks.replay_plot build/replay.json > docs/measurements/replay.svg

.PHONY: screenshots
screenshots: $(STAMPS)/system-tests build ## the pictures in docs/screenshots, from the running product
	$(BIN)/python ui-tests/screenshots.py

.PHONY: examples
examples: build-tests ## runs the notebooks in examples/ and saves what they show; GPUPOOL_TORCH_PYTHON=<python with PyTorch>, GPUPOOL_TENSORFLOW_PYTHON=<python with TensorFlow>, GPUPOOL_JAX_PYTHON=<python with JAX> for all nine
	$(BIN)/python -m tests.support.examples

DOCS := build/docs-venv/bin/python
# What people write for people; dated records and generated pages are left as they are.
PROSE := $(wildcard *.md) .github $(wildcard docs/*.md) $(addprefix docs/,tutorial how-to explanation reference contributing)
# Autodoc imports the program, whose own packages are in .venv.
$(STAMPS)/docs-venv: docs/requirements.txt $(STAMPS)/venv
	$(call say,Virtual environment for the documentation)
	@mkdir -p $(STAMPS)
	@test -x $(DOCS) || $(BIN)/python -m venv build/docs-venv
	$(DOCS) -m pip install --quiet -r docs/requirements.txt
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' > "$$($(DOCS) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/build_environment.pth"
	@touch $@

.PHONY: docs
docs: $(STAMPS)/docs-venv $(STAMPS)/proto ## the documentation site, in build/docs; warnings are errors
	$(DOCS) -m codespell_lib $(PROSE)
	$(BIN)/python docs/generate_reference.py
	$(DOCS) -m sphinx -q -W --keep-going -b html docs build/docs
	@echo "build/docs/index.html"

.PHONY: docs-links
docs-links: $(STAMPS)/docs-venv $(STAMPS)/proto ## follows the links of the documentation to other sites; needs a network
	$(BIN)/python docs/generate_reference.py
	$(DOCS) -m sphinx -q -b linkcheck docs build/docs-links

.PHONY: lock
lock: ## write requirements.lock from what is installed
	$(BIN)/python .ci/write_lock.py

.PHONY: clean
clean: ## remove what was built, keep .venv
	rm -rf build dist server/gpupool/_native jupyter_gpupool/labextension jupyter_gpupool/widget/static lib labextension/lib
	rm -f server/gpupool/proto/gpupool/v1/*_pb2* labextension/src/api/request.ts labextension/src/api/reasons.ts labextension/src/api/types.ts jupyter_gpupool/server/rest/openapi.json
