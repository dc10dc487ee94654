/* Numbers that lie in a Parquet file as they are, neither encoded nor compressed: they are read straight into the
   cache, and become rows there. Where anything is not as plain as that, the answer is that it is not. */
#ifndef _WIN32
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <unistd.h>
#endif
#include "batches.h"

#define HEAD 512             /* bytes of a page that hold its header, unless somebody put very much into it */
#define TOGETHER (1 << 20)   /* bytes of all columns that are read before they become rows: a cache holds them */
#define FEWEST 256           /* rows of that, however many columns: each costs a call of the system */
#define LINE 64              /* bytes; columns that all begin at the same place of a page would share few lines */

/* Read bytes of a file from some place on, as many as there are; returns how many, or -1 where it could not be done. */
static int64_t read_some(int file, void *into, int64_t size, int64_t place)
{
#ifdef _WIN32
    return -1;
#else
    int64_t done = 0;
    while (done < size) {
        ssize_t got = pread(file, (char *)into + done, (size_t)(size - done), (off_t)(place + done));
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            return -1;
        done += got > 0 ? got : 0;
    }
    return done;
#endif
}

/* Bytes that are still to be read; `failed` once they were too few, or not what they should be. */
struct cursor {
    const uint8_t *at, *end;
    bool failed;
};

static uint8_t next_byte(struct cursor *from)
{
    from->failed = from->failed || from->at >= from->end;
    return from->failed ? 0 : *from->at++;
}

/* An unsigned number of variable length. */
static uint64_t next_number(struct cursor *from)
{
    uint64_t number = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t byte = next_byte(from);
        number |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return number;
    }
    from->failed = true;
    return 0;
}

static int64_t signed_number(struct cursor *from)
{
    uint64_t number = next_number(from);
    return (int64_t)(number >> 1) ^ -(int64_t)(number & 1);
}

static void skip(struct cursor *from, uint64_t size)
{
    from->failed = from->failed || size > (uint64_t)(from->end - from->at);
    from->at += from->failed ? 0 : size;
}

/* Types of Thrift's compact protocol. */
enum { STOP = 0, YES, NO, BYTE, SHORT_INT, INT, LONG_INT, REAL_NUMBER, BINARY, LIST, SET, MAP, STRUCT };

#define FIELDS 9 /* numbers of the fields of a page's header, and of those inside it, are below that */

/* Numbers of the fields of a struct, 0 for those that are no numbers; where it holds others, `inner` gets those of the
   one that describes data. Lists and maps have no place in a header. */
static void read_fields(struct cursor *from, int64_t *fields, int64_t *inner, int depth)
{
    int64_t id = 0;
    for (uint8_t head = next_byte(from); head && !from->failed; head = next_byte(from)) {
        id = head >> 4 ? id + (head >> 4) : signed_number(from);
        if (id < 0 || id > INT16_MAX) {
            from->failed = true;
            return;
        }
        int64_t value = 0, ignored[FIELDS];
        bool describes = inner && (id == 5 || id == 8);
        switch (head & 15) {
        case YES: value = 1; break;
        case NO: break;
        case BYTE: value = next_byte(from); break;
        case SHORT_INT: case INT: case LONG_INT: value = signed_number(from); break;
        case REAL_NUMBER: skip(from, 8); break;
        case BINARY: skip(from, next_number(from)); break;
        case STRUCT:
            from->failed = from->failed || depth == 0;
            if (!from->failed)
                read_fields(from, describes ? inner : ignored, NULL, depth - 1);
            value = 1;
            break;
        default: from->failed = true;
        }
        if (id < FIELDS)
            fields[id] = value;
    }
}

/* Whether levels of definition, runs of bits, say of all of so many numbers that they are there. */
static bool all_defined(struct cursor levels, int64_t count)
{
    while (count > 0 && !levels.failed) {
        uint64_t run = next_number(&levels);
        int64_t size = (int64_t)(run >> 1);
        if (run & 1) {
            for (int64_t i = 0; i < size && count > 0; i++, count -= 8) {
                int wanted = count < 8 ? (1 << count) - 1 : 255;
                if ((next_byte(&levels) & wanted) != wanted)
                    return false;
            }
        } else {
            if (size == 0 || next_byte(&levels) != 1)
                return false;
            count -= size;
        }
    }
    return !levels.failed;
}

/* What the head of a page tells: bytes before its numbers, bytes of the whole page, and how many numbers there are. */
struct page {
    int64_t before, bytes, count;
};

/* Names of fields, as parquet.thrift numbers them. */
enum { TYPE = 1, PLAIN_BYTES, STORED_BYTES };
enum { OF_V1 = 0, OF_V2 = 3, PLAIN = 0, RLE = 3 };

/* Bytes of levels before the numbers of a page, the cursor at their first one; -1 where the page is not plain. */
static int64_t levels_of_page(struct cursor *from, const int64_t *fields, const int64_t *data, bool optional)
{
    if (fields[TYPE] == OF_V2)
        return data[4] == PLAIN && data[6] == 0 ? data[5] : -1;
    if (fields[TYPE] != OF_V1 || data[2] != PLAIN || (optional && data[3] != RLE))
        return -1;
    int64_t size = 0;
    for (int shift = 0; shift < (optional ? 32 : 0); shift += 8)
        size |= (int64_t)next_byte(from) << shift;
    return size;
}

/* Read the head of a page; false where its numbers are not plain, or not all there. */
static bool read_head(const uint8_t *bytes, int64_t size, int64_t width, bool optional, struct page *page)
{
    struct cursor from = {bytes, bytes + size, false};
    int64_t fields[FIELDS] = {0}, data[FIELDS] = {0};
    read_fields(&from, fields, data, 2);
    int64_t head = from.at - bytes, levels = levels_of_page(&from, fields, data, optional);
    if (from.failed || levels < 0 || levels > from.end - from.at || fields[PLAIN_BYTES] != fields[STORED_BYTES])
        return false;
    if (fields[STORED_BYTES] < 0 || fields[STORED_BYTES] > INT32_MAX)
        return false;
    struct cursor of_levels = {from.at, from.at + levels, false};
    *page = (struct page){from.at + levels - bytes, head + fields[STORED_BYTES], data[1]};
    bool fits = page->count > 0 && page->count <= INT32_MAX && page->bytes - page->before == page->count * width;
    return fits && (!optional || all_defined(of_levels, page->count));
}

/* Find the pages of a column that begins at `place` of a file: of each its first row, and where its numbers begin.
   Returns how many there are, or -1 where they are not plain, or more than `most`. */
EXPORT int64_t plain_pages(int file, int64_t place, int64_t rows, int64_t kind, bool optional, int64_t most,
                           int64_t *pages)
{
    uint8_t bytes[HEAD];
    int64_t found = 0, row = 0;
    for (; row < rows && found < most; found++) {
        struct page page;
        int64_t size = read_some(file, bytes, HEAD, place);
        if (size < 0 || !read_head(bytes, size, bytes_of_kind[kind], optional, &page))
            return -1;
        pages[2 * found] = row;
        pages[2 * found + 1] = place + page.before;
        place += page.bytes;
        row += page.count;
    }
    return row == rows ? found : -1;
}

/* A column of a file: its pages, with a further one that begins after the last row, and its kind of numbers. */
struct plain_column {
    const int64_t *pages;
    int64_t count, kind;
};

/* Read some numbers of a column, from row `start` on; false where that is not possible. */
static bool read_numbers(int file, const struct plain_column *column, int64_t start, int64_t n, char *into)
{
    const int64_t *page = column->pages, *last = page + 2 * (column->count - 1);
    int64_t width = bytes_of_kind[column->kind];
    while (page < last && page[2] <= start)
        page += 2;
    for (; n > 0; page += 2) {
        int64_t some = shorter(n, page[2] - start), size = some * width;
        if (read_some(file, into, size, page[1] + (start - page[0]) * width) != size)
            return false;
        start += some;
        n -= some;
        into += size;
    }
    return true;
}

/* Read n numbers of one column, from row `start` on; returns whether that was possible. */
EXPORT int read_plain(int file, const struct plain_column *column, int64_t start, int64_t n, void *into)
{
    return read_numbers(file, column, start, n, into);
}

/* Read n rows of d columns from row `start` on, and write them into X as fill_rows does, a few at a time. Returns
   whether that was possible. */
EXPORT int fill_plain_rows(int file, const struct plain_column *from, int64_t d, int64_t start, int64_t n,
                           double *RESTRICT X, bool *good, double *low, double *high)
{
    int64_t most = shorter(n, TOGETHER / (8 * d) > FEWEST ? TOGETHER / (8 * d) : FEWEST), apart = 8 * most + LINE;
    struct column *columns = malloc((size_t)d * sizeof *columns);
    char *memory = malloc((size_t)(d * apart));
    double *aside = room_for_tile(n, d);
    bool fine = columns && memory;
    for (int64_t j = 0; j < (fine ? d : 0); j++)
        columns[j] = (struct column){memory + j * apart, NULL, 0, from[j].kind};
    for (int64_t row = 0; row < n && fine; row += most) {
        int64_t count = shorter(most, n - row);
        for (int64_t j = 0; j < d && fine; j++)
            fine = read_numbers(file, from + j, start + row, count, memory + j * apart);
        if (fine)
            fill_tiles(columns, count, d, X + row * d, good + row, low, high, aside);
    }
    free(aside);
    free(memory);
    free(columns);
    return fine;
}
