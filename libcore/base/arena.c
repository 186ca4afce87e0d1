/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c - memory with one lifetime (arena.h).                                room: base
 *
 * A block is one calloc: a header, padding to 64, then what it hands out in steps of 64 bytes.
 * calloc rather than malloc and memset, because large blocks then come as untouched zero pages.
 */
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"

enum { ALIGN = 64, FIRST_BYTES = 4096, GROWTH_MAX_BYTES = 16 << 20 };

struct arena_block {
    struct arena_block *next;
    char *data;  /* aligned to ALIGN */
    size_t size; /* bytes at data */
    size_t used;
};

static struct arena_block *block_new(size_t size)
{
    if (size > SIZE_MAX - sizeof(struct arena_block) - ALIGN) {
        return NULL;
    }
    struct arena_block *b = calloc(1, sizeof *b + ALIGN + size);
    if (b == NULL) {
        return NULL;
    }
    char *p = (char *)(b + 1);
    b->data = p + (ALIGN - (uintptr_t)p % ALIGN) % ALIGN;
    b->size = size;
    return b;
}

/* The block to serve `need` bytes from. Something larger than the next regular block gets a block
 * of its own behind the head, so that the rest of the head stays in use. */
static struct arena_block *block_for(struct arena *a, size_t need)
{
    struct arena_block *head = a->head;
    if (head != NULL && need <= head->size - head->used) {
        return head;
    }
    size_t regular = head == NULL ? FIRST_BYTES : 2 * head->size;
    if (regular > GROWTH_MAX_BYTES) {
        regular = GROWTH_MAX_BYTES;
    }
    bool own = need > regular;
    struct arena_block *b = block_new(own ? need : regular);
    if (b == NULL) {
        return NULL;
    }
    if (own && head != NULL) {
        b->next = head->next;
        head->next = b;
    } else {
        b->next = head;
        a->head = b;
    }
    return b;
}

void *arena_alloc(struct arena *a, size_t n)
{
    if (n > SIZE_MAX - ALIGN || n > SIZE_MAX - a->used_bytes) {
        return NULL;
    }
    size_t need = n == 0 ? ALIGN : (n + ALIGN - 1) / ALIGN * ALIGN;
    struct arena_block *b = block_for(a, need);
    if (b == NULL) {
        return NULL;
    }
    void *p = b->data + b->used;
    b->used += need;
    a->used_bytes += n;
    return p;
}

void *arena_array(struct arena *a, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size) {
        return NULL;
    }
    return arena_alloc(a, count * size);
}

char *arena_strdup(struct arena *a, struct str s)
{
    if (s.n == SIZE_MAX) {
        return NULL;
    }
    char *p = arena_alloc(a, s.n + 1);
    if (p != NULL && s.n > 0) {
        memcpy(p, s.p, s.n);
    }
    return p;
}

void arena_free(struct arena *a)
{
    struct arena_block *b = a->head;
    while (b != NULL) {
        struct arena_block *next = b->next;
        free(b);
        b = next;
    }
    *a = (struct arena){ 0 };
}
