/* Reads the blocks of a segment file, and steps from one to the next. The index, the live state, recovery, verification,
 * archives and repair all visit blocks with this code. Nothing here needs the interpreter. */
#pragma once

#include <errno.h>
#include <stdlib.h>

#include "format/format.h"
#include "system/file.h"

enum {
    JLOG_BLOCK_VALID = 1,
    JLOG_BLOCK_NONE = 0,                                 /* the file ends here, or only zeros follow the place */
    JLOG_BLOCK_BAD_HEADER = -1,
    JLOG_BLOCK_BAD_BODY = -2,
    JLOG_BLOCK_UNREADABLE = -3,                          /* `error` holds the errno of the system call; JLOG_LATER: a block of
                                                            a later version */
};

#define JLOG_LATER EPROTO
#define JLOG_PIECE_BYTES ((size_t)16 << 10)              /* jlog_check_block reads so much at once; it fits on any stack */

/* Returns the offset after a block that begins at `offset`. */
static inline uint64_t jlog_block_end(const struct jlog_block_header *header, uint64_t offset)
{
    return offset + sizeof *header + header->stored_bytes;
}

/* Reads the header of the block at this offset. Returns a JLOG_BLOCK_ status. */
static int jlog_read_block_header(int fd, const uint8_t uuid[16], uint64_t segment, uint64_t offset,
                                  struct jlog_block_header *header, int *error)
{
    const int64_t got = jlog_read_at(fd, header, sizeof *header, offset);

    if (got < 0) {
        *error = (int)-got;
        return JLOG_BLOCK_UNREADABLE;
    }
    if (got == (int64_t)sizeof *header && jlog_block_header_valid(header, uuid, segment, offset))
        return JLOG_BLOCK_VALID;
    if (got == (int64_t)sizeof *header && jlog_block_is_later(header, uuid, segment, offset)) {
        *error = JLOG_LATER;
        return JLOG_BLOCK_UNREADABLE;
    }
    for (int64_t i = 0; i < got; i++)
        if (((const uint8_t *)header)[i] != 0)
            return JLOG_BLOCK_BAD_HEADER;
    return JLOG_BLOCK_NONE;
}

/* Reads header and stored body. The body goes into *body, which has room for *room bytes and grows by malloc; free it. */
static int jlog_read_block(int fd, const uint8_t uuid[16], uint64_t segment, uint64_t offset,
                           struct jlog_block_header *header, uint8_t **body, size_t *room, int *error)
{
    const int status = jlog_read_block_header(fd, uuid, segment, offset, header, error);
    int64_t got, file_bytes;

    if (status != JLOG_BLOCK_VALID)
        return status;
    if (*room < header->stored_bytes || *body == NULL) {
        /* A header with a right CRC may still state more bytes than the file has. So the size is checked before malloc. */
        file_bytes = jlog_file_bytes(fd);
        if (file_bytes >= 0 && jlog_block_end(header, offset) > (uint64_t)file_bytes)
            return JLOG_BLOCK_BAD_BODY;
        free(*body);
        *body = malloc((size_t)header->stored_bytes + 64);
        *room = *body != NULL ? header->stored_bytes : 0;
        if (*body == NULL) {
            *error = ENOMEM;
            return JLOG_BLOCK_UNREADABLE;
        }
    }
    got = jlog_read_at(fd, *body, header->stored_bytes, offset + sizeof *header);
    if (got < 0) {
        *error = (int)-got;
        return JLOG_BLOCK_UNREADABLE;
    }
    if (got != header->stored_bytes || jlog_crc32c(0, *body, header->stored_bytes) != header->stored_crc)
        return JLOG_BLOCK_BAD_BODY;
    return JLOG_BLOCK_VALID;
}

/* Checks header and stored body, and keeps nothing of the body. It takes no memory, because its caller holds a lock and must
 * not fail for want of memory. */
static int jlog_check_block(int fd, const uint8_t uuid[16], uint64_t segment, uint64_t offset,
                            struct jlog_block_header *header, int *error)
{
    const int status = jlog_read_block_header(fd, uuid, segment, offset, header, error);
    uint8_t piece[JLOG_PIECE_BYTES];
    uint64_t done = 0;
    uint32_t crc = 0;

    if (status != JLOG_BLOCK_VALID)
        return status;
    while (done < header->stored_bytes) {
        const uint64_t left = header->stored_bytes - done;
        const size_t wanted = left < sizeof piece ? (size_t)left : sizeof piece;
        const int64_t got = jlog_read_at(fd, piece, wanted, offset + sizeof *header + done);

        if (got < 0) {
            *error = (int)-got;
            return JLOG_BLOCK_UNREADABLE;
        }
        if (got != (int64_t)wanted)
            return JLOG_BLOCK_BAD_BODY;
        crc = jlog_crc32c(crc, piece, wanted);
        done += wanted;
    }
    return crc == header->stored_crc ? JLOG_BLOCK_VALID : JLOG_BLOCK_BAD_BODY;
}

/* --- From block to block ----------------------------------------------------------------------------------------- */

struct jlog_block_walk {
    int fd;
    const uint8_t *uuid;
    uint64_t segment;
    uint64_t end;                                        /* no block at or after this offset is visited */
    uint64_t next;                                       /* offset of the block that is visited next */
    uint64_t offset;                                     /* offset of the block in `header` */
    struct jlog_block_header header;
    int with_body;                                       /* each block's stored body is read into `body`, and checked */
    uint8_t *body;
    size_t room;
    int status;                                          /* status of the block that was visited last */
    int error;
};

/* Begins a walk at `offset`. The struct is all zeros, except that `body` and `room` may be those of a former walk. */
static inline void jlog_begin_walk(struct jlog_block_walk *walk, int fd, const uint8_t uuid[16], uint64_t segment,
                                   uint64_t offset, uint64_t end, int with_body)
{
    walk->fd = fd;
    walk->uuid = uuid;
    walk->segment = segment;
    walk->next = offset;
    walk->end = end;
    walk->with_body = with_body;
    walk->status = JLOG_BLOCK_VALID;
    walk->error = 0;
}

/* Steps to the next block. Returns 0 if there is none: at `end`, or where no whole block stands; `status` says why. */
static inline int jlog_next_block(struct jlog_block_walk *walk)
{
    walk->offset = walk->next;
    if (walk->next >= walk->end) {
        walk->status = JLOG_BLOCK_VALID;
        return 0;
    }
    if (walk->with_body)
        walk->status = jlog_read_block(walk->fd, walk->uuid, walk->segment, walk->next, &walk->header, &walk->body,
                                       &walk->room, &walk->error);
    else
        walk->status = jlog_read_block_header(walk->fd, walk->uuid, walk->segment, walk->next, &walk->header, &walk->error);
    if (walk->status != JLOG_BLOCK_VALID)
        return 0;
    walk->next = jlog_block_end(&walk->header, walk->next);
    return 1;
}
