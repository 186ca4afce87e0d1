# Packages and what runs beside other programs; included by the Makefile.
check-reach: all ## packages, image, other processors, clusters, in roots of their own (as root on Debian): TOPICS=NAME...: some
	@BIN='$(BIN)' REACH='$(BUILD)/reach' bash tests/reach/check.sh $(TOPICS)
.PHONY: check-reach
