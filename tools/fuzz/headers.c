/* Feeds any bytes to the decoders in pyx/format/format.h and record.h, buffer/publish.h, records/columns.h and
 * records/json.h.
 * Every checksum is put right first, so that the code after the checksums is tested.
 *
 * The first byte of an input chooses the structure, the rest is its image. Built with clang -fsanitize=fuzzer it is a target of
 * libFuzzer; linked with standalone.c, by any compiler, it is a program that runs files and seeded mutations of them. */
#define _GNU_SOURCE /* for qsort_r, as Python.h has it */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "records/columns.h"
#include "records/json.h"
#include "format/format.h"
#include "buffer/publish.h"

static const uint8_t uuid[16] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77};
static volatile uint64_t sink; /* what is read must not be optimized away */

static void touch(const uint8_t *at, size_t bytes) { sink += jlog_crc32c(0, at, bytes); }

/* --- Records -------------------------------------------------------------------------------------------------------- */

static void decode_headers(const uint8_t *at, size_t left)
{
    const uint8_t *name, *value;
    uint32_t name_bytes, value_bytes;
    size_t size;

    for (; left != 0 && (size = jlog_decode_header(at, left, &name, &name_bytes, &value, &value_bytes)) != 0; at += size) {
        assert(size <= left);
        touch(name, name_bytes);
        if (value != NULL)
            touch(value, value_bytes);
        left -= size;
    }
}

static void free_array(struct jlog_array *array)
{
    free(array->validity);
    free(array->offsets);
    free(array->data);
}

static void make_array(struct jlog_array *array, uint64_t rows, uint64_t bytes)
{
    array->validity = calloc(rows / 8 + 1, 1);
    array->offsets = calloc(rows + 1, sizeof *array->offsets);
    array->data = malloc(bytes + JLOG_PIECE_OF_VALUE);
    array->room = (uint32_t)bytes;
}

/* The columns that a cursor has them become, in exactly the room that was measured. */
static void fill_columns(const uint8_t *at, size_t bytes, uint64_t records, int64_t base_time_us)
{
    const uint8_t *const end = at + bytes;
    struct jlog_columns to = {0};
    struct jlog_sizes sizes;

    jlog_measure(at, end, &sizes);
    if (sizes.name_bytes > INT32_MAX)
        return;
    to.sequence = calloc(records + 1, sizeof *to.sequence);
    to.timestamp_us = calloc(records + 1, sizeof *to.timestamp_us);
    make_array(&to.value, records, bytes);
    make_array(&to.key, records, sizes.key_bytes);
    make_array(&to.headers, records, 0);
    make_array(&to.name, sizes.headers, sizes.name_bytes);
    make_array(&to.header_value, sizes.headers, sizes.header_value_bytes);
    at = jlog_fill_ready(&to, at, end, base_time_us, records, 1);
    jlog_fill(&to, at, end, base_time_us);
    jlog_fill_sequence(&to, 0, 7);
    jlog_catch_up(&to.key, to.rows);
    jlog_catch_up(&to.headers, to.rows);
    assert(to.rows == records);
    free(to.sequence);
    free(to.timestamp_us);
    free_array(&to.value);
    free_array(&to.key);
    free_array(&to.headers);
    free_array(&to.name);
    free_array(&to.header_value);
}

/* A body, in memory of exactly its size. What the walk takes for records, all other decoders must find too. */
static uint64_t decode_body(const uint8_t *body, size_t bytes, int64_t base_time_us)
{
    uint8_t *exact = malloc(bytes == 0 ? 1 : bytes);
    struct jlog_record record;
    struct jlog_walk walk;
    size_t at = 0, size;
    uint64_t records = 0;
    const int whole = jlog_walk_records(memcpy(exact, body, bytes), bytes, base_time_us, &walk) == 0;

    for (; at < bytes && (size = jlog_decode_record(exact + at, bytes - at, base_time_us, &record)) != 0; at += size) {
        assert(size <= bytes - at && size >= JLOG_SHORT_BYTES);
        if (record.value != NULL)
            touch(record.value, record.value_bytes);
        if (record.key != NULL)
            touch(record.key, record.key_bytes);
        decode_headers(record.headers, record.headers_bytes);
        records += !jlog_is_state(&record);
    }
    if (whole) {
        assert(at == bytes && walk.record_count == records && records <= bytes / JLOG_SHORT_BYTES);
        fill_columns(exact, bytes, records, base_time_us);
    }
    free(exact);
    return whole ? records : UINT64_MAX;
}

static void fuzz_body(const uint8_t *data, size_t size)
{
    int64_t base_time_us = 0;

    if (size < sizeof base_time_us)
        return;
    memcpy(&base_time_us, data, sizeof base_time_us);
    (void)decode_body(data + sizeof base_time_us, size - sizeof base_time_us, base_time_us);
}

/* --- Blocks ---------------------------------------------------------------------------------------------------------- */

/* A segment file from its first block on: every header and body is given its CRC, and then read as the reader does. */
static void fuzz_blocks(const uint8_t *data, size_t size)
{
    uint64_t offset = JLOG_FIRST_BLOCK, sequence = 0;
    size_t at = 0;

    while (size - at >= sizeof(struct jlog_block_header)) {
        struct jlog_block_header header;
        const uint8_t *body = data + at + sizeof header;

        memcpy(&header, data + at, sizeof header);
        header.magic = JLOG_BLOCK_MAGIC;
        if (header.stored_bytes <= size - at - sizeof header) {
            header.stored_crc = jlog_crc32c(0, body, header.stored_bytes);
            if (header.codec == JLOG_CODEC_NONE)
                header.raw_crc = header.stored_crc;
        }
        header.header_crc = jlog_block_header_crc(&header, uuid, 0, offset);
        if (!jlog_block_header_valid(&header, uuid, 0, offset))
            return;
        assert(header.first_sequence + header.record_count <= JLOG_NUMBER_MAX);
        assert(header.raw_bytes <= JLOG_RAW_BYTES_MAX && header.stored_bytes <= header.raw_bytes);
        if (header.stored_bytes > size - at - sizeof header)
            return;
        if (header.codec == JLOG_CODEC_NONE)
            (void)decode_body(body, header.stored_bytes, header.base_time_us);
        offset += sizeof header + header.stored_bytes;
        sequence = header.first_sequence + header.record_count;
        at += sizeof header + header.stored_bytes;
    }
    sink += sequence;
}

/* --- Structures under a CRC of their own -------------------------------------------------------------------------------- */

static void fuzz_structure(const uint8_t *data, size_t size)
{
    struct jlog_segment_header segment;
    struct jlog_bounds bounds;
    struct jlog_position position;

    if (size >= sizeof segment) {
        memcpy(&segment, data, sizeof segment);
        if (jlog_segment_header_valid(&segment) && segment.previous_segment != JLOG_NONE)
            assert(segment.previous_segment < segment.first_sequence);
    }
    if (size >= sizeof bounds) {
        memcpy(&bounds, data, sizeof bounds);
        if (jlog_bounds_valid(&bounds)) {
            assert(bounds.reservation_limit + JLOG_RESERVATION_STRIDE > bounds.reservation_limit);
            assert(bounds.first_sequence <= bounds.mark_sequence);
        }
    }
    if (size >= sizeof position) {
        memcpy(&position, data, sizeof position);
        if (jlog_position_valid(&position))
            assert(position.sequence <= JLOG_NUMBER_MAX);
    }
}

static void fuzz_index(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size == 0 ? 1 : size);
    struct jlog_index_header header;
    struct jlog_index_entry entry;
    uint64_t count;

    memcpy(exact, data, size);
    if (size >= sizeof header) {
        memcpy(&header, exact, sizeof header);
        memcpy(header.uuid, uuid, sizeof uuid);
        memcpy(exact, &header, sizeof header);
        sink += jlog_structure_crc(exact, size);
        count = jlog_index_entries(exact, size, uuid, header.segment);
        for (uint64_t i = 0; i < count; i++) {
            memcpy(&entry, exact + sizeof header + i * sizeof entry, sizeof entry);
            assert(entry.first_sequence <= JLOG_NUMBER_MAX && entry.offset <= JLOG_NUMBER_MAX);
        }
    } else {
        assert(jlog_index_entries(exact, size, uuid, 0) == 0);
    }
    free(exact);
}

/* --- The control page ---------------------------------------------------------------------------------------------------- */

/* A page and its bodies: slots and words are given their CRCs, then what they vouch for is read, and the page is written to as
 * an append does that found it current. */
static void fuzz_page(const uint8_t *data, size_t size)
{
    const uint64_t capacity = JLOG_CAPACITY_MIN;
    uint8_t *file = aligned_alloc(64, JLOG_PAGE_BYTES + 2 * capacity);
    struct jlog_page *page = (struct jlog_page *)(void *)file;
    struct jlog_buffer buffer = {.page = page, .bodies = file + JLOG_PAGE_BYTES, .owner = 1};

    memset(file, 0, JLOG_PAGE_BYTES + 2 * capacity);
    memcpy(file, data, size < JLOG_PAGE_BYTES + 2 * capacity ? size : JLOG_PAGE_BYTES + 2 * capacity);
    memcpy(page->uuid, uuid, sizeof uuid);
    page->capacity = capacity;
    for (int parity = 0; parity < 2; parity++) {
        struct jlog_slot *slot = &page->slots[parity];
        const uint8_t *body = buffer.bodies + (slot->generation & 1) * capacity;
        const uint32_t used = jlog_word_used(slot->publish_word);

        slot->crc = jlog_slot_crc(slot, uuid);
        if (!jlog_slot_valid(slot, uuid) || slot->capacity > capacity)
            continue;
        assert(used <= capacity);
        slot->publish_word = jlog_word(used, jlog_crc32c(0, body, used));
        if (used != 0)
            (void)decode_body(body + JLOG_BASE_BYTES, jlog_word_raw(slot->publish_word), jlog_load64(body));
    }
    if (jlog_slot_valid(jlog_open_slot(page), uuid) && jlog_open_slot(page)->capacity <= capacity &&
        jlog_open_slot(page)->generation == page->generation) {
        static const uint8_t value[100] = "a value";

        (void)jlog_first_unwritten(page);
        page->next_sequence &= JLOG_NUMBER_MAX - 1;
        page->reservation_limit = JLOG_NUMBER_MAX;
        for (int i = 0; i < 50; i++)
            sink += (uint64_t)jlog_put_value(&buffer, value, sizeof value, 1700000000000000 + i);
        jlog_rotate(page, page->slots[0].segment & (JLOG_NUMBER_MAX - 1), 168, 7, 0, jlog_block_capacity(page, 168));
        assert(jlog_open_slot(page)->capacity <= capacity);
        sink += (uint64_t)jlog_put_value(&buffer, value, sizeof value, 1700000000000000);
    }
    free(file);
}

/* --- JSON ---------------------------------------------------------------------------------------------------------------- */

/* A batch of two values: the bytes up to a byte 0, and the bytes after it. */
static void fuzz_json(const uint8_t *data, size_t size)
{
    enum { FIELDS = 8 };
    static const char *const names[FIELDS] = {"int", "text", "float", "bool", "whole", "big", "outer", "list"};
    static const enum jlog_json_type types[FIELDS] = {JLOG_JSON_INT64,  JLOG_JSON_STRING, JLOG_JSON_DOUBLE, JLOG_JSON_BOOL,
                                                      JLOG_JSON_UINT64, JLOG_JSON_NUMBER, JLOG_JSON_OBJECT, JLOG_JSON_ARRAY};
    uint8_t *exact = malloc(size), *scratch = malloc(6 * 5);
    const uint8_t *const middle = size == 0 ? NULL : memchr(data, 0, size);
    const int32_t offsets[] = {0, (int32_t)(middle == NULL ? size : (size_t)(middle - data)), (int32_t)size};
    struct jlog_json_field fields[FIELDS] = {0}, item = {.type = JLOG_JSON_STRING};
    int32_t starts[3], counted[3];
    const locale_t c_locale = newlocale(LC_ALL_MASK, "C", NULL);
    const int is_text = jlog_utf8_valid(data, size);
    size_t row = 0;

    if (size != 0)
        memcpy(exact, data, size);
    for (size_t i = 0; i < FIELDS; i++) {
        fields[i].name = (const uint8_t *)names[i];
        fields[i].name_bytes = strlen(names[i]);
        fields[i].type = types[i];
        fields[i].validity = calloc(1, 1);
        fields[i].offsets = types[i] >= JLOG_JSON_STRING ? calloc(3, sizeof(int32_t)) : NULL;
        fields[i].data = types[i] >= JLOG_JSON_STRING ? malloc(0) : calloc(2, 8);
    }
    while ((row = jlog_json_columns(fields, FIELDS, exact, offsets, row, 2, is_text, scratch, c_locale)) < 2)
        for (size_t i = 0; i < FIELDS; i++)
            if (jlog_json_need(&fields[i], row) > fields[i].room) {
                fields[i].room = jlog_json_need(&fields[i], row);
                fields[i].data = realloc(fields[i].data, fields[i].room);
            }
    jlog_json_items(NULL, fields[7].data, fields[7].offsets, 2, counted, c_locale);
    item.validity = calloc((size_t)counted[2] / 8 + 1, 1);
    item.offsets = calloc((size_t)counted[2] + 1, sizeof(int32_t));
    item.data = malloc(size);
    jlog_json_items(&item, fields[7].data, fields[7].offsets, 2, starts, c_locale);
    assert(memcmp(starts, counted, sizeof starts) == 0 && jlog_utf8_valid(item.data, (size_t)item.offsets[starts[2]]));
    free(item.validity);
    free(item.offsets);
    free(item.data);
    for (size_t i = 0; i < FIELDS; i++) {
        const uint8_t *text = fields[i].data;

        if (types[i] >= JLOG_JSON_STRING)
            assert(jlog_utf8_valid(text, (size_t)fields[i].offsets[2]));
        free(fields[i].validity);
        free(fields[i].offsets);
        free(fields[i].data);
    }
    freelocale(c_locale);
    free(scratch);
    free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const targets[])(const uint8_t *, size_t) = {fuzz_body,  fuzz_blocks, fuzz_structure,
                                                               fuzz_index, fuzz_page,   fuzz_json};

    if (size > 0)
        targets[data[0] % (sizeof targets / sizeof *targets)](data + 1, size - 1);
    return 0;
}
