# chimere: plain `make` builds the programs into bin/. Targets: all demo check install clean help.
VERSION  = 0.1.0
PREFIX  ?= /usr/local
SAN     ?=
BUILD   ?= build$(if $(SAN),/$(SAN))
BIN     ?= $(if $(SAN),$(BUILD)/bin,bin)
CC      ?= cc
GOLDENS ?=

WARN     = -Wall -Wextra -Wconversion -Wshadow -Wmissing-prototypes -Wvla -Werror
SANFLAGS = $(if $(filter asan,$(SAN)),-fsanitize=address,undefined -fno-sanitize-recover=all) \
           $(if $(filter tsan,$(SAN)),-fsanitize=thread) \
           $(if $(filter ubsan,$(SAN)),-fsanitize=undefined -fno-sanitize-recover=all)
CFLAGS  ?= -O2 -g
CPPFLAGS += -Ilibcore -Icmd -D_DEFAULT_SOURCE -D_POSIX_C_SOURCE=200809L -DCHIMERE_VERSION='"$(VERSION)"'
ALLFLAGS = -std=c11 -pedantic -ftree-vectorize -fvect-cost-model=dynamic -ffp-contract=off -pthread \
           $(WARN) $(SANFLAGS) $(CPPFLAGS) $(CFLAGS)
LDLIBS   = -ljansson -lpcre2-8 -lzstd -lm -pthread

LIB_C    = $(wildcard libcore/*/*.c)
CLI_C    = $(wildcard cmd/cli/*.c)
PROGS    = $(patsubst cmd/%.c,$(BIN)/chimere-%,$(wildcard cmd/*.c))
UNITS    = $(patsubst tests/unit/%.c,$(BUILD)/test/%,$(wildcard tests/unit/*_test.c))

all: $(PROGS)

# One library for the programs, one with test hooks (-DCHIMERE_TEST) for the tests.
$(BUILD)/libchimere.a: $(LIB_C:%.c=$(BUILD)/obj/%.o)
	@rm -f $@ && ar rcs $@ $^
$(BUILD)/test/libchimere.a: $(LIB_C:%.c=$(BUILD)/test/%.o)
	@rm -f $@ && ar rcs $@ $^
$(BIN)/chimere-%: $(BUILD)/obj/cmd/%.o $(CLI_C:%.c=$(BUILD)/obj/%.o) $(BUILD)/libchimere.a
	@mkdir -p $(@D)
	$(CC) $(SANFLAGS) -o $@ $^ $(LDFLAGS) $(LDLIBS)
$(BUILD)/test/%_test: $(BUILD)/test/tests/unit/%_test.o $(BUILD)/test/libchimere.a
	@mkdir -p $(@D)
	$(CC) $(SANFLAGS) -o $@ $^ $(LDFLAGS) -lcmocka $(LDLIBS)
$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALLFLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/test/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALLFLAGS) -DCHIMERE_TEST -Itests -MMD -MP -c -o $@ $<
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

unit: $(UNITS)
	@set -e; for t in $(UNITS); do $$t; done

clean:
	rm -rf build bin
.PHONY: all unit clean
.SECONDARY:
