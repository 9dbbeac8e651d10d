/* The format of Kafka's record batches (magic 2). https://kafka.apache.org/documentation/#recordbatch is the specification.
 *
 * Numbers in a record are zigzag varints. Those in the header of a batch are big-endian. */
#ifndef JLOG_RECORD_BATCH_H
#define JLOG_RECORD_BATCH_H

#define JLOG_BATCH_HEADER_BYTES 61u
#define JLOG_BATCH_LENGTH_END 12u                        /* the length of a batch counts the bytes from here on */
#define JLOG_BATCH_CRC_BEGIN 21u                         /* the CRC is that of the bytes from here on */
#define JLOG_BATCH_MAGIC 2

/* Attributes of a batch. */
#define JLOG_BATCH_CODEC 0x07u
#define JLOG_BATCH_APPEND_TIME 0x08u
#define JLOG_BATCH_TRANSACTIONAL 0x10u
#define JLOG_BATCH_CONTROL 0x20u
#define JLOG_BATCH_LZ4 3u                                /* a codec */

#endif
