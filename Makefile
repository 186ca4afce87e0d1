# chimere: plain `make` builds the programs into bin/; `make help` lists the targets.
VERSION  = 0.1.0
PREFIX  ?= /usr/local
BUILD   ?= build$(if $(SAN),/$(SAN))
BIN     ?= $(if $(SAN),$(BUILD)/bin,bin)
CC      ?= cc
# The CUDA device: where there are kernels and a compiler; sanitizers go without, and `make install` takes what was built. Files that name sm_90a are compiled for each GPU.
KERNELS  = $(wildcard kernels/*/*.cu)
CUDA    ?= $(if $(SAN),0,$(if $(KERNELS),$(if $(and $(filter install,$(MAKECMDGOALS)),$(wildcard $(BUILD)/flags)),$(if $(shell grep CHIMERE_CUDA $(BUILD)/flags),1,0),$(if $(shell command -v nvcc),1,0)),0))
NVCC    ?= nvcc
ifeq ($(CUDA),1)
CUDA_ARCHS := $(or $(CUDA_ARCHS),$(filter 90 120,$(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | tr -d . | sort -u)),90 120)
CUDA_DIR := $(abspath $(dir $(realpath $(shell command -v $(NVCC))))/..)
CUBLAS   := $(or $(CUBLAS),$(shell $(CC) -I$(CUDA_DIR)/include -include cublas_v2.h -E -x c /dev/null > /dev/null 2>&1 && echo 1))
CPPFLAGS += -DCHIMERE_CUDA $(if $(filter 1,$(CUBLAS)),-DCHIMERE_CUBLAS)
CUDA_O   := $(KERNELS:%.cu=$(BUILD)/obj/%.o)
CUDA_LIB := -L$(CUDA_DIR)/lib64 $(if $(and $(filter 1,$(CUBLAS)),$(filter-out /usr,$(PREFIX))),-Xlinker -rpath -Xlinker $(CUDA_DIR)/lib64) -lcudart_static -lstdc++ -ldl -lrt
NVFLAGS   = -std=c++17 -O3 -fmad=false -I. -Ilibcore -Xcompiler -Wall,-Wextra,-Wno-missing-field-initializers $(filter -DCHIMERE_CUBLAS,$(CPPFLAGS)) $(QUICK)
gencode   = $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(or $1,$a),code=sm_$a)
endif
MAKEFLAGS += $(if $(filter 0,$(MAKELEVEL)),-j$(shell nproc 2>/dev/null || echo 2))

WARN     = -Wall -Wextra -Wconversion -Wshadow -Wmissing-prototypes -Wvla -Werror
# gcc sees conversions in the code that UBSan adds. A pointer that wraps is found by ASan where it is used, in half the time.
SAN_ubsan = -fsanitize=undefined -fno-sanitize-recover=all -Wno-conversion -Wno-sign-conversion
SAN_asan  = -fsanitize=address $(SAN_ubsan)
SAN_tsan  = -fsanitize=thread
SAN_fuzz  = -fsanitize=fuzzer-no-link,address,undefined
SANFLAGS  = $(SAN_$(SAN))
PLAIN_O   = $(if $(PLAIN),$(patsubst %.c,$(PLAIN)/obj/%.o,$(wildcard $(addprefix libcore/,$(addsuffix /*.c,cpu cpu/formats quant))))) # PLAIN=DIR: that build's loops, which sanitizers slow most
$(if $(filter-out asan tsan ubsan fuzz,$(SAN)),$(error SAN=$(SAN): asan, tsan or ubsan))
CFLAGS  ?= $(if $(filter asan ubsan,$(SAN)),-O1,-O2) -g1 $(if $(SAN),-fno-omit-frame-pointer)
# Libraries that a build does without where the compiler finds no header.
found    = $(shell $(CC) -include $1 -E -x c /dev/null > /dev/null 2>&1 && echo 1)
HTTP    := $(or $(HTTP),$(call found,microhttpd.h))
BLAS    := $(or $(BLAS),$(call found,openblas_config.h))
EDIT    := $(or $(EDIT),$(call found,histedit.h))
FAISS_LIB := $(shell CC='$(CC)' sh share/faiss.sh '$(BUILD)' '$(FAISS)')
CPPFLAGS += $(if $(filter 1,$(HTTP)),-DCHIMERE_HTTP) $(if $(filter 1,$(BLAS)),-DCHIMERE_BLAS) $(if $(filter 1,$(EDIT)),-DCHIMERE_EDIT) $(if $(FAISS_LIB),-DCHIMERE_FAISS $(if $(FAISS),-idirafter $(FAISS)/include)) -Ilibcore -Icmd -D_DEFAULT_SOURCE -D_POSIX_C_SOURCE=200809L -DCHIMERE_VERSION='"$(VERSION)"'
# What gcc alone has: its last two optimisations would turn sums and their operands around until registers spill.
GCC     := $(if $(findstring clang,$(shell $(CC) --version)),,-fvect-cost-model=dynamic -fno-tree-reassoc -fno-tree-ter)
ALLFLAGS = -std=c11 -pedantic -ftree-vectorize -ffp-contract=off $(GCC) -pthread $(WARN) $(SANFLAGS) $(CPPFLAGS) $(CFLAGS)
LDLIBS   = -Wl,--as-needed -ljansson -lpcre2-8 -lzstd $(if $(filter 1,$(HTTP)),-lmicrohttpd) $(if $(filter 1,$(BLAS)),-lopenblas) $(FAISS_LIB) $(CUDA_LIB) -lm -pthread

LIB_C    = $(wildcard libcore/*/*.c libcore/*/*/*.c)
CLI_C    = $(wildcard cmd/cli/*.c)
NAMES    = $(patsubst cmd/%.c,chimere-%,$(wildcard cmd/*.c))
PROGS    = $(addprefix $(BIN)/,$(NAMES))
UNITS    = $(patsubst tests/unit/%.c,$(BUILD)/test/%,$(wildcard tests/unit/*_test.c))
FUZZ     = $(patsubst tests/fuzz/%.c,$(BUILD)/test/%,$(wildcard tests/fuzz/fuzz_*.c))
# Data that the checkout has in another form: compressed, as a description that is drawn from, or made by a script.
UNPACKED:= $(patsubst %.zst,%,$(wildcard share/eval/*.zst share/rehearse/*.zst tests/golden/*/*.zst tests/golden/*/*/*.zst tests/fuzz/corpus/*/*.zst))
DATA     = $(UNPACKED) $(patsubst %.draw,%.gguf,$(wildcard tests/golden/*/*.draw)) tests/fuzz/corpus/gguf.expect
STEP     = $(if $(STEPS),@echo >> $(BUILD)/steps; printf '[%3d/%d] %s\n' $$(wc -l < $(BUILD)/steps) $(STEPS) $<; )
all: $(PROGS) $(filter share/%,$(UNPACKED)) ## build the programs into bin/
# One library for the programs, one for the tests: what has hooks (-DCHIMERE_TEST) is compiled for each.
HOOKED  := $(shell grep -l CHIMERE_TEST $(LIB_C))
$(BUILD)/libchimere.a: $(LIB_C:%.c=$(BUILD)/obj/%.o) $(CUDA_O) ; @rm -f $@ && ar rcs $@ $^
$(BUILD)/test/libchimere.a: $(HOOKED:%.c=$(BUILD)/test/%.o) $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out $(HOOKED),$(LIB_C))) $(CUDA_O) ; @rm -f $@ && ar rcs $@ $^
# A program is cmd/NAME.c and cmd/NAME/*.c. Of cmd/cli it links only what it calls, and so needs no library that another one uses.
OWN_O    = $(addprefix $(BUILD)/obj/,$(addsuffix .o,$(basename $(wildcard cmd/$*/*.c))))
.SECONDEXPANSION:
$(BUILD)/libcli.a: $(CLI_C:%.c=$(BUILD)/obj/%.o) ; @rm -f $@ && ar rcs $@ $^
$(BIN)/chimere-%: $(BUILD)/obj/cmd/%.o $$(OWN_O) $(BUILD)/libcli.a $(BUILD)/libchimere.a
	@mkdir -p $(@D)
	$(CC) $(SANFLAGS) $(PLAIN_O) -o $@ $^ $(LDFLAGS) $(LDLIBS)
# The files of the page to chat with are a table in the server.
$(BUILD)/page.c: cmd/serve-stdio/embed.sh $(wildcard cmd/serve-stdio/page/*) ; @mkdir -p $(@D) && sh $^ > $@
$(BIN)/chimere-serve-stdio: $(BUILD)/obj/$(BUILD)/page.o
$(BUILD)/test/%_test: $(BUILD)/test/tests/unit/%_test.o $(BUILD)/test/libchimere.a ; $(CC) $(SANFLAGS) $(if $(filter $*,adapt cpu cpu_ops cpu_seq digest golden quant quant_fit quant_int),,$(PLAIN_O)) -o $@ $^ $(LDFLAGS) -lcmocka $(LDLIBS)
$(BUILD)/test/fuzz_%: $(BUILD)/test/tests/fuzz/fuzz_%.o $(BUILD)/test/tests/fuzz/driver.o $(BUILD)/test/libchimere.a ; $(CC) $(SANFLAGS) -o $@ $^ $(LDFLAGS) $(LDLIBS)
$(BUILD)/test/draw: $(BUILD)/test/tests/golden/draw.o $(BUILD)/test/libchimere.a ; $(CC) $(SANFLAGS) -o $@ $^ $(LDFLAGS) $(LDLIBS)
$(BUILD)/test/libfuzzer_%: $(BUILD)/test/tests/fuzz/fuzz_%.o $(BUILD)/test/libchimere.a ; $(CC) $(SANFLAGS) -fsanitize=fuzzer -o $@ $^ $(LDFLAGS) $(LDLIBS)
$(UNITS) $(FUZZ): | $(DATA)
$(UNPACKED): %: %.zst ; @zstd -dqf $< -o $@
%.gguf: %.draw tests/golden/draw.c | $(BUILD)/test/draw $(UNPACKED) ; @$(BUILD)/test/draw $< $@
tests/fuzz/corpus/gguf.expect: tests/fuzz/make_corpus.py ; @python3 $<
$(BUILD)/test/fault-shim.so: tests/fault/shim.c ; @mkdir -p $(@D) && $(CC) -std=c11 -D_GNU_SOURCE -Wall -Wextra -O1 -g -fPIC -shared -o $@ $< -ldl
$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(STEP)$(CC) $(ALLFLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/test/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(STEP)$(CC) $(ALLFLAGS) -DCHIMERE_TEST -Itests -MMD -MP -c -o $@ $<
$(BUILD)/obj/libcore/cpu/formats/%.o: private SAN_asan = -fsanitize=address # UBSan would take three times as long over loops that are laid out
$(BUILD)/obj/cmd/bench/record.o: private CPPFLAGS += -DCHIMERE_COMMIT='"$(shell cat $(BUILD)/commit 2> /dev/null)"'
$(BUILD)/obj/cmd/cli/model_path.o: private CPPFLAGS += -DCHIMERE_PREFIX='"$(PREFIX)"'
$(BUILD)/obj/cmd/bench/record.o: $(BUILD)/commit
$(BUILD)/obj/cmd/cli/model_path.o: $(BUILD)/prefix
$(BUILD)/obj/%.o: %.cu $(BUILD)/nvflags
	@mkdir -p $(@D)
	$(STEP)$(NVCC) $(NVFLAGS) $(if $(shell grep -l sm_90a $<),$(subst _90,_90a,$(gencode)),$(call gencode,$(firstword $(CUDA_ARCHS)))) -MMD -MP -c -o $@ $<
# Another commit than last time, or other flags: what depends on them is compiled again.
$(BUILD)/commit: private TEXT = $(or $(shell GIT_OPTIONAL_LOCKS=0 git describe --always --dirty --exclude '*' 2>/dev/null),unknown)
$(BUILD)/prefix: private TEXT = $(PREFIX)
$(BUILD)/flags: private TEXT = $(CC) $(ALLFLAGS)
$(BUILD)/nvflags: private TEXT = $(NVCC) $(NVFLAGS) $(CUDA_ARCHS)
$(BUILD)/commit $(BUILD)/prefix $(BUILD)/flags $(BUILD)/nvflags: always
	@mkdir -p $(@D); t='$(subst ','\'',$(TEXT))'; printf '%s\n' "$$t" | cmp -s - $@ || printf '%s\n' "$$t" > $@
-include $(shell find $(BUILD)/obj $(BUILD)/test -name '*.d' 2>/dev/null) share/reach.mk

tests: $(PROGS) $(DATA) $(UNITS) $(FUZZ) $(BUILD)/test/fault-shim.so ## build everything that `make check` runs, run nothing
unit: $(UNITS) ; @printf '%s\n' $(UNITS) | xargs -P "$$(nproc)" -I T sh -c 'T > T.said 2>&1 || { cat T.said; exit 1; }' ## the unit tests alone
picture: ; bash bench/picture.sh bench/cpu.md bench/serve.md > bench/speed.svg ## draw speeds beside other engines
FUZZ_TARGET ?= gguf
fuzz: ## run a libFuzzer target of tests/fuzz (needs clang): FUZZ_TARGET=gguf FUZZ_ARGS=-max_total_time=60
	@$(MAKE) --no-print-directory -s CC=clang SAN=fuzz BUILD=build/fuzz build/fuzz/test/libfuzzer_$(FUZZ_TARGET) $(DATA)
	mkdir -p build/fuzz/new-$(FUZZ_TARGET) && build/fuzz/test/libfuzzer_$(FUZZ_TARGET) $(FUZZ_ARGS) build/fuzz/new-$(FUZZ_TARGET) tests/fuzz/corpus/$(FUZZ_TARGET)
deps: ; @CC='$(CC)' sh share/deps.sh build check ## install missing Debian packages (for building and testing)
demo: private CUDA := $(if $(filter file,$(origin CUDA)),$(if $(shell grep -s CHIMERE_CUDA $(BUILD)/flags),1,0),$(CUDA))
demo: ## install what is missing, build (with CUDA=1 for a GPU, too), and ask the embedded model
	@CC='$(CC)' sh share/deps.sh build; rm -f $(BUILD)/steps
	@$(MAKE) --no-print-directory -s CUDA=$(CUDA) all STEPS=$$($(MAKE) -n CUDA=$(CUDA) all | grep -c -e ' -c -o ')
	@BIN='$(BIN)' bash share/demo.sh
# A make inside make: packages first, then the builds, which depend on them. Kernels that no GPU here runs are not optimised, unless they are there.
check check-fast: export QUICK = $(if $(or $(shell nvidia-smi -L 2> /dev/null),$(shell grep -Ls fast-compile $(BUILD)/nvflags)),,$(addsuffix =max,$(shell $(NVCC) --help 2> /dev/null | grep -om1 -e --Ofast-compile)))
check check-fast: deps ## build, run every test, print the count; check-fast: a minute's choice; GOLDENS=DIR: all golden vectors
	@$(MAKE) --no-print-directory -s tests
	@MAKE='$(MAKE) --no-print-directory -s' BUILD='$(BUILD)' BIN='$(BIN)' CC='$(CC)' FAST=$(filter check-fast,$@) \
	    GOLDENS='$(if $(GOLDENS),$(abspath $(GOLDENS)))' bash tests/run.sh
GPU_TESTS = grad_gpu grad gemm attn settle gen gen_random probe draft golden few_gpu check adapt placement copy run want state kv ops_gpu dev drafter math train launches groups
check-gpu: $(GPU_TESTS:%=$(BUILD)/test/%_test) ## the tests of the models and operations, on a GPU (CUDA_DEVICE=cuda:N)
	@set -e; for a in i16 i8; do for t in $^; do CHIMERE_TEST_ACTS=$$a CHIMERE_TEST_DEVICE=$(or $(CUDA_DEVICE),cuda) GOLDENS='$(GOLDENS)' $$t; done; done
check-clients: all ; @BIN='$(BIN)' BUILD='$(BUILD)' bash tests/clients/check.sh $(CLIENTS) ## first steps of public clients, CLIENTS=NAME...: some of them
format: ; @bash tests/style/clang_format.sh -i ## rewrite the sources in the format of .clang-format
lint: ## clang-tidy with the checks of .clang-tidy, where it is installed; `make check` has it, too
	@command -v clang-tidy > /dev/null || { echo 'lint: clang-tidy is not installed'; exit 0; }; printf '%s\n' $(LIB_C) $(wildcard cmd/*.c cmd/*/*.c) | \
	    xargs -P $$(nproc) -n 8 sh -c 'clang-tidy --quiet "$$@" -- -std=c11 $(subst ','\'',$(CPPFLAGS))' lint 2> /dev/null
editor compile_commands.json: ; @printf '%s\n' -std=c11 $(CPPFLAGS) -Itests > compile_flags.txt; $(MAKE) -nB all tests | bash tests/compile_commands.sh > compile_commands.json ## write compile_flags.txt and compile_commands.json, which clangd and clang-tidy read
proof-nightly: all ; @PATH="$(abspath $(BIN)):$$PATH" nice -n 19 bash bench/nightly-week.sh $(WEEK) ## a week of nights on made-up facts, hours on 2 cores: WEEK='DAYS FACTS CPU_TIME'
bench-quant: all ; @BIN='$(BIN)' nice -n 19 bash bench/quant.sh $(MODEL) $(TEXT) ## KL by size for mixes of chimere-quantize, hours: MODEL TEXT
SHARE   = $(DESTDIR)$(PREFIX)/share
install: all ## programs, manuals, completions, embedded model, task sets, recipes, jobs: PREFIX, DESTDIR
	install -d $(DESTDIR)$(PREFIX)/bin $(addprefix $(SHARE)/,chimere/models chimere/eval chimere/rehearse chimere/jobs chimere/pipelines chimere/recipes chimere/k8s chimere/systemd/user chimere/systemd/system man/man1 man/man5 man/man7 bash-completion/completions zsh/site-functions fish/vendor_completions.d) && $(or $(INSTALL),install) -s -m 755 $(PROGS) $(DESTDIR)$(PREFIX)/bin
	@set -e; for m in man/*.[157]; do sed 's,/usr/local\(/share\|$$\),$(PREFIX)\1,' $$m > $(SHARE)/$${m%/*}/man$${m##*.}/$${m##*/}; chmod 644 $(SHARE)/$${m%/*}/man$${m##*.}/$${m##*/}; done
	install -m 644 share/models/*.gguf share/models/*.md $(SHARE)/chimere/models; install -m 644 share/recipes/* $(SHARE)/chimere/recipes; install -m 644 share/k8s/* $(SHARE)/chimere/k8s; install -m 644 LICENSE README.md share/magic share/haproxy.cfg share/demo/* $(SHARE)/chimere
	install -m 644 $(sort $(filter share/eval/%,$(UNPACKED)) $(filter-out %.zst,$(wildcard share/eval/*))) $(SHARE)/chimere/eval && install -m 644 $(filter share/rehearse/%,$(UNPACKED)) $(SHARE)/chimere/rehearse && install -m 755 share/pipelines/* $(SHARE)/chimere/pipelines && install -m 755 share/jobs/* $(SHARE)/chimere/jobs && install -m 755 share/convert/convert.py $(SHARE)/chimere/convert
	@set -e; cd share/systemd; for u in crontab */*; do sed 's|@PREFIX@|$(PREFIX)|g; s|/usr/bin:/usr/local/bin:/usr/bin:|/usr/bin:/usr/local/bin:|' $$u > $(abspath $(SHARE))/chimere/systemd/$$u; done
	@set -e; for p in $(NAMES); do \
	    $(EMULATE) $(BIN)/$$p --completion bash > $(SHARE)/bash-completion/completions/$$p; \
	    $(EMULATE) $(BIN)/$$p --completion zsh > $(SHARE)/zsh/site-functions/_$$p; $(EMULATE) $(BIN)/$$p --completion fish > $(SHARE)/fish/vendor_completions.d/$$p.fish; done
uninstall: ## remove what install put there
	(cd $(DESTDIR)$(PREFIX)/bin && rm -f $(NAMES)) && cd $(SHARE) && rm -rf chimere $(foreach m,$(wildcard man/*.[157]),man/man$(subst .,,$(suffix $m))/$(notdir $m)) $(NAMES:%=bash-completion/completions/%) $(NAMES:%=zsh/site-functions/_%) $(NAMES:%=fish/vendor_completions.d/%.fish)
clean: ; rm -rf build bin $(DATA) tests/fuzz/corpus/gguf ## remove build/ and bin/
#? variables     CC CFLAGS SAN=asan|tsan|ubsan CUDA_ARCHS GOLDENS=DIR PREFIX DESTDIR
#? CUDA=0        leaves the GPU out, as it is without nvcc; CUDA_ARCHS: for the GPUs that are here, else 90 120, each 7 minutes of 2 cores
#? one test      make tests, then build/test/NAME_test or BIN=bin bats -f NAME tests/cli/FILE.bats
help: ; @awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-13s %s\n", $$1, $$2 } sub(/^#[?] /, "")' $(firstword $(MAKEFILE_LIST)) share/reach.mk ## this list
.PHONY: all tests unit picture check-gpu fuzz deps demo check check-fast check-clients format lint editor compile_commands.json bench-quant proof-nightly install uninstall clean help always
.SECONDARY:
