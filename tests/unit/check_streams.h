/* SPDX-License-Identifier: Apache-2.0 */
/* check_streams.h - hyper-connections and attention over chosen blocks, for check_test.c, which includes it. */
static void streams_once(int64_t width, int64_t n, int64_t rows)
{
    struct tensor x = put_rows(n * width, rows, 3, 1), g = put_rows(n * width, rows, 2, 3), a = put_rows(n, rows, 1, 3);
    struct tensor y = put_poison(width, rows, 5), gated = put_poison(n * width, rows, 1);
    struct tensor low = put_rows(width, rows, 2, 4);

    begin();
    op_streams_mix(dut, y, x, g);
    op_streams_gate(dut, gated, x, g, y);
    op_streams_add(dut, x, y, a);
    op_silu(dut, low, 0.25f);
    end("streams");
    take(y);
    take(gated);
    drop(x);
    drop(g);
    drop(a);
    drop(low);
}

static void streams(void **state)
{
    (void)state;
    streams_once(1, 2, 1);
    streams_once(48, 3, 5);
    streams_once(300, 4, 2);
    streams_once(1028, 2, 70);
}

/* Two sequences that share pages, fed in chunks of which some are before any choice; all rows that have one choose and
 * attend. */
static void chosen_once(int type_k, int type_v, int type_x, int ratio, int most, int n_head, int dim_x)
{
    enum { DIM = 64, KV = 2, Q = 6, PAGES = 6 };
    static const int32_t page0[3] = { 4, 0, 2 }, page1[3] = { 1, 3, 5 };
    static const int32_t *const page[2] = { page0, page1 };
    static const int chunk[][2] = { { 1, 3 }, { 250, 2 }, { 1, 1 }, { 40, 300 }, { 1, 0 }, { 0, 1 }, { 30, 1 } };
    struct op_kv kv = { type_k, type_v, KV, DIM, DIM, NULL, 0, page, type_x, dim_x, 0, 0 };
    float *norm = put_floats(dim_x, 1), *freq = put_floats(8, 1);
    const struct op_index a = { ratio, most, n_head, norm, 1e-6f, { dim_x, 16, freq, false, 0 } };
    int at[2] = { 0, 0 };

    kv.page_bytes = OP_KV_PAGE * (KV * (size_t)(quant_row_bytes(type_k, DIM) + quant_row_bytes(type_v, DIM)) +
                                  (size_t)quant_row_bytes(type_x, dim_x));
    kv.pages = dev_alloc(dut, PAGES * kv.page_bytes);
    assert_non_null(kv.pages);
    for (size_t i = 0; i < sizeof chunk / sizeof chunk[0]; i++) {
        const int n = chunk[i][0] + chunk[i][1];
        struct op_seq seq[2], late[2];
        int32_t *pos = need((size_t)n * sizeof *pos), *pick = dev_alloc(dut, (size_t)(n * most) * sizeof *pick);
        int n_seq = 0, row = 0, chosen = 0;

        assert_non_null(pick);
        for (int s = 0; s < 2; s++) {
            if (chunk[i][s] == 0)
                continue;
            const int before = (most + 1) * ratio - 1 - at[s], skip = before < 0 ? 0 : before;
            seq[n_seq] = late[n_seq] = (struct op_seq){ .row = row, .n = chunk[i][s], .slot = s, .pos = at[s] };
            late[n_seq].row += skip < chunk[i][s] ? skip : chunk[i][s];
            late[n_seq].pos += skip;
            late[n_seq].n = skip < chunk[i][s] ? chunk[i][s] - skip : 0;
            chosen += late[n_seq++].n;
            for (int j = 0; j < chunk[i][s]; j++)
                pos[row++] = at[s]++;
        }
        const struct op_rows r = { n, NULL, pos, n_seq, seq }, some = { n, NULL, pos, n_seq, late };
        struct tensor k = put_rows(KV * DIM, n, 3, 2), v = put_rows(KV * DIM, n, 1, 2), ik = put_rows(dim_x, n, 1, 2);
        struct tensor q = put_rows(Q * DIM, n, 2, 2), iq = put_rows(n_head * dim_x, n, 2, 2);
        struct tensor y = put_rows(Q * DIM, n, 5, 1);

        begin();
        op_kv_store(dut, k, v, &kv, &r);
        op_index_store(dut, ik, &kv, &a, &r);
        if (chosen > 0) {
            op_index_pick(dut, pick, iq, &kv, &a, &some);
            op_attn_picked(dut, y, q, pick, &kv, 0.11f, &a, &some);
        }
        end("chosen blocks");
        drop(k);
        drop(v);
        drop(ik);
        drop(q);
        drop(iq);
        drop(y);
        dev_free(dut, pick, (size_t)(n * most) * sizeof *pick);
        free(pos);
    }
    dev_free(dut, kv.pages, PAGES * kv.page_bytes);
    drop_floats(norm, dim_x);
    drop_floats(freq, 8);
}

static void chosen_blocks(void **state)
{
    (void)state;
    chosen_once(QUANT_f32, QUANT_f32, QUANT_f32, 4, 5, 3, 16);
    chosen_once(QUANT_f16, QUANT_q8_0, QUANT_f16, 3, 2, 5, 20); /* blocks of two pages */
    chosen_once(QUANT_q8_0, QUANT_q4_0, QUANT_f16, 64, 2, 17, 128);
    chosen_once(QUANT_q4_0, QUANT_f16, QUANT_f16, 1, 40, 1, 32);
    conv_once(3, 3, 70, false, true, false);
    conv_once(4, 3, 300, true, true, true);
}
