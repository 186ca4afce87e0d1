# Packages and what runs beside other programs; included by the Makefile.
check-reach: all $(DATA) ## packages, image, other processors, clusters, in roots of their own (as root on Debian): TOPICS=NAME...: some
	@BIN='$(BIN)' REACH='$(BUILD)/reach' bash tests/reach/check.sh $(TOPICS)
deb: ; @DEB_BUILD_OPTIONS='$(or $(DEB_BUILD_OPTIONS),parallel=$(shell nproc))' sh share/deb.sh $(BUILD)/deb ## Debian packages, from a clean root, with lintian and autopkgtest: ARCH=arm64, DEB_BUILD_PROFILES (as root)
image: ; @sh share/image.sh $(BUILD)/deb ## an image for containers from these packages, by buildah (as root)
.PHONY: check-reach deb image
