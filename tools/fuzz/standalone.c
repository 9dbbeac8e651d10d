/* Runs a fuzz target without libFuzzer, so that any compiler will do: files, or seeded mutations of them. Compiled with
 * -fsanitize-coverage=trace-pc, as gcc has it too, an input that reaches code which none before has reached is kept and mutated
 * further. The input that is being run stands in a file until it has come back: one that crashes is kept, whatever it crashes with.
 *
 *     headers FILE…                                      runs each file once
 *     headers --seed N --seconds S --failing PATH FILE…  mutates them too; the seconds are the processor's
 *     headers --again PATH                               runs the input that failed */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_BYTES_MAX = 16 << 10, INPUTS_MAX = 4096, EDGES = 1 << 16 };

struct input {
    uint8_t *data;
    size_t size;
};

static uint64_t state;
static uint8_t seen[EDGES];                              /* edges of the program's flow that some input has taken */
static uint64_t found_new;
static uintptr_t before;

/* The compiler calls it at each edge. */
void __sanitizer_cov_trace_pc(void);

__attribute__((no_sanitize("address", "undefined"))) void __sanitizer_cov_trace_pc(void)
{
    const uintptr_t here = (uintptr_t)__builtin_return_address(0);
    const size_t edge = (here ^ before << 1) * 2654435769u >> 8 & (EDGES - 1);

    before = here;
    found_new += !seen[edge];
    seen[edge] = 1;
}

static uint64_t draw(void) /* xorshift64*: the same numbers for the same seed everywhere */
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 2685821657736338717ull;
}

static uint64_t below(uint64_t limit) { return limit == 0 ? 0 : draw() % limit; }

static int read_input(const char *path, struct input *input)
{
    FILE *file = fopen(path, "rb");

    if (file == NULL)
        return -1;
    input->data = malloc(INPUT_BYTES_MAX + 8);
    input->size = fread(input->data, 1, INPUT_BYTES_MAX + 8, file);
    return fclose(file);
}

/* What stands in a file of failing_file(): an input behind its size. */
static int read_failing(const char *path, struct input *input)
{
    uint64_t size;

    if (read_input(path, input) != 0 || input->size < sizeof size)
        return -1;
    memcpy(&size, input->data, sizeof size);
    input->size = size < input->size - sizeof size ? size : input->size - sizeof size;
    memmove(input->data, input->data + sizeof size, input->size);
    return 0;
}

/* A number that a length, an offset or a sequence is often wrong by. */
static uint64_t number(void)
{
    static const uint64_t interesting[] = {0, 1, 7, 8, 20, 72, 96, 168, 4095, 4096, 65535, 65536, 1u << 30, (1u << 30) + 1,
                                           INT32_MAX, UINT32_MAX, 1ull << 62, INT64_MAX, 1ull << 63, UINT64_MAX - 1, UINT64_MAX};

    return below(4) != 0 ? interesting[below(sizeof interesting / sizeof *interesting)] : draw();
}

static size_t mutate(uint8_t *data, size_t size, const struct input *other)
{
    const size_t at = below(size);
    const size_t width = (size_t)1 << below(4);
    uint64_t value = number();
    size_t count;

    switch (below(7)) {
    case 0:
        data[at] ^= (uint8_t)(1u << below(8));
        break;
    case 1:
        data[at] = (uint8_t)draw();
        break;
    case 2: /* a number at a place that numbers have */
        if (size > 1 + width)
            memcpy(data + 1 + below((size - 1) / width) * width, &value, width);
        break;
    case 3: /* a small change of what is there */
        if (at + 4 <= size) {
            uint32_t found;
            memcpy(&found, data + at, 4);
            found += (uint32_t)below(17) - 8;
            memcpy(data + at, &found, 4);
        }
        break;
    case 4:
        size = 1 + below(size);
        break;
    case 5: /* a piece of another input */
        count = below(other->size < 256 ? other->size : 256);
        value = below(other->size - count + 1);
        if (at + count > INPUT_BYTES_MAX)
            count = INPUT_BYTES_MAX - at;
        memcpy(data + at, other->data + value, count);
        size = at + count > size ? at + count : size;
        break;
    default: /* a piece twice */
        count = below(size - at < 64 ? size - at : 64);
        if (size + count <= INPUT_BYTES_MAX) {
            memmove(data + at + count, data + at, size - at);
            size += count;
        }
    }
    return size == 0 ? 1 : size;
}

static uint8_t *failing_file(const char *path)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    void *mapped = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, 8 + INPUT_BYTES_MAX) == 0)
        mapped = mmap(NULL, 8 + INPUT_BYTES_MAX, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
        perror(path);
        exit(2);
    }
    return mapped;
}

/* Keeps the input where one more has room, and `seen` has grown. */
static size_t keep(struct input *inputs, size_t count, const uint8_t *data, size_t size)
{
    if (count == INPUTS_MAX)
        return count;
    inputs[count].data = malloc(size);
    inputs[count].size = size;
    memcpy(inputs[count].data, data, size);
    return count + 1;
}

static uint64_t fuzz(struct input *inputs, size_t *count, double seconds, const char *path)
{
    uint8_t *failing = failing_file(path), *data = malloc(INPUT_BYTES_MAX);
    const clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC); /* of this process alone */
    uint64_t done = 0;

    while (done % 256 != 0 || clock() < end) {
        const struct input *from = &inputs[below(*count)];
        const uint64_t known = found_new;
        uint64_t size = from->size;

        memcpy(data, from->data, size);
        for (uint64_t turns = 1 + below(6); turns != 0; turns--)
            size = mutate(data, size, &inputs[below(*count)]);
        memcpy(failing + 8, data, size);
        memcpy(failing, &size, sizeof size);
        before = 0;
        (void)LLVMFuzzerTestOneInput(data, size);
        if (found_new != known)
            *count = keep(inputs, *count, data, size);
        done++;
    }
    unlink(path);
    free(data);
    return done;
}

int main(int argc, char **argv)
{
    static struct input inputs[INPUTS_MAX];
    const char *failing = "failing-input";
    double seconds = 0;
    size_t count = 0;

    state = 1;
    for (int i = 1; i < argc && count < INPUTS_MAX; i++) {
        if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
            state = strtoull(argv[++i], NULL, 10) * 2 + 1;
        } else if (i + 1 < argc && strcmp(argv[i], "--seconds") == 0) {
            seconds = strtod(argv[++i], NULL);
        } else if (i + 1 < argc && strcmp(argv[i], "--failing") == 0) {
            failing = argv[++i];
        } else if (i + 1 < argc && strcmp(argv[i], "--again") == 0) {
            if (read_failing(argv[++i], &inputs[count]) == 0)
                count++;
        } else if (read_input(argv[i], &inputs[count]) == 0 && inputs[count].size <= INPUT_BYTES_MAX) {
            if (inputs[count].size != 0)
                count++;
        } else {
            perror(argv[i]);
            return 2;
        }
    }
    for (size_t i = 0; i < count; i++)
        (void)LLVMFuzzerTestOneInput(inputs[i].data, inputs[i].size);
    if (seconds > 0 && count != 0) {
        const size_t given = count;
        const uint64_t done = fuzz(inputs, &count, seconds, failing);

        printf("%llu executions, %zu inputs kept, %llu edges\n", (unsigned long long)done, count - given,
               (unsigned long long)found_new);
    }
    for (size_t i = 0; i < count; i++)
        free(inputs[i].data);
    return 0;
}
