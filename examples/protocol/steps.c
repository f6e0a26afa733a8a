/* Ten steps with a checkpoint after each, for the form `folder`, in C without a library. It adds up squares.
 *
 * Build: cc -O2 -Wall -o steps steps.c
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void fail(const char *what)
{
    fprintf(stderr, "steps: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* --- the little JSON that is needed: finding a member of an object ---------------------------------------------- */

static const char *skip_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static const char *skip_string(const char *at)
{
    for (at++; *at != '\0' && *at != '"'; at++)
        if (*at == '\\' && at[1] != '\0')
            at++;
    return *at == '"' ? at + 1 : at;
}

static const char *skip_value(const char *at)
{
    int depth = 0;
    for (at = skip_space(at); *at != '\0'; at = *at == '"' ? skip_string(at) : at + 1) {
        if (*at == '{' || *at == '[')
            depth++;
        if (depth == 0 && (*at == ',' || *at == '}' || *at == ']'))
            break;
        if (*at == '}' || *at == ']')
            depth--;
    }
    return at;
}

/* The value of a member, or NULL when `object` is no object that has it. */
static const char *member(const char *object, const char *name)
{
    if (object == NULL || *(object = skip_space(object)) != '{')
        return NULL;
    for (const char *at = skip_space(object + 1); *at == '"'; at = skip_space(at)) {
        const char *key = at + 1, *value;
        at = skip_string(at);
        size_t length = (size_t)(at - key - 1);
        value = skip_space(skip_space(at) + 1);
        if (length == strlen(name) && strncmp(key, name, length) == 0)
            return value;
        at = skip_value(value);
        if (*at == ',')
            at = skip_space(at + 1);
    }
    return NULL;
}

static long number(const char *value, long otherwise)
{
    char *end;
    long found = value == NULL ? otherwise : strtol(value, &end, 10);
    return value == NULL || end == value ? otherwise : found;
}

/* Copies a text without escapes, which names and paths of the protocol never have. */
static void text(const char *value, char *into, size_t room)
{
    size_t length = value != NULL && *value == '"' ? strcspn(value + 1, "\"") : 0;
    if (length >= room)
        length = room - 1;
    if (length > 0)
        memcpy(into, value + 1, length);
    into[length] = '\0';
}

/* --- files ------------------------------------------------------------------------------------------------------ */

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t size = 0, room = 65536;
    char *data = malloc(room + 1);
    if (file == NULL || data == NULL)
        fail(path);
    for (size_t got; (got = fread(data + size, 1, room - size, file)) > 0; size += got) {
        if (size + got == room && (data = realloc(data, (room *= 2) + 1)) == NULL)
            fail(path);
    }
    if (ferror(file))
        fail(path);
    fclose(file);
    data[size] = '\0';
    return data;
}

/* Writes a file so that nobody ever sees half of it. */
static void replace_file(const char *path, const char *head, const char *body)
{
    char part[512];
    snprintf(part, sizeof part, "%s.part", path);
    FILE *file = fopen(part, "wb");
    if (file == NULL || fputs(head, file) == EOF || fputs(body, file) == EOF || fclose(file) != 0)
        fail(part);
    if (rename(part, path) != 0)
        fail(path);
}

static void tell(long step, long steps, long total)
{
    FILE *file = fopen("progress.jsonl", "ab");
    if (file == NULL)
        fail("progress.jsonl");
    fprintf(file,
            "{\"fraction\": %.4f, \"message\": \"step %ld\", \"metrics\": {\"total\": %ld}, "
            "\"checkpoint\": \"step-%ld\"}\n",
            (double)step / (double)steps, step, total, step);
    if (fclose(file) != 0)
        fail("progress.jsonl");
}

/* --- the work --------------------------------------------------------------------------------------------------- */

int main(void)
{
    char *task = read_file("task.json");
    const char *parameters = member(task, "parameters"), *checkpoint = member(task, "checkpoint");
    long steps = number(member(parameters, "steps"), 10), pause_ms = number(member(parameters, "pause_ms"), 0);
    long step = 0, total = 0;
    char name[128], path[512], result[512], *table = calloc(1, 1);

    text(member(checkpoint, "name"), name, sizeof name);
    text(member(checkpoint, "path"), path, sizeof path);
    if (path[0] != '\0') {
        free(table);
        table = read_file(path);
        for (char *line = table; line != NULL && sscanf(line, "%ld,%ld", &step, &total) == 2;)
            line = strchr(line, '\n') != NULL ? strchr(line, '\n') + 1 : NULL;
    }
    long started_at = step + 1;
    printf("attempt %ld starts at step %ld\n", number(member(task, "attempt"), 0), started_at);
    fflush(stdout);

    while (step < steps) {
        struct timespec pause = {pause_ms / 1000, (pause_ms % 1000) * 1000000L};
        nanosleep(&pause, NULL);
        step++;
        total += step * step;
        size_t length = table == NULL ? 0 : strlen(table);
        table = realloc(table, length + 64);
        if (table == NULL)
            fail("memory");
        snprintf(table + length, 64, "%ld,%ld\n", step, total);
        snprintf(path, sizeof path, "checkpoint/step-%ld", step);
        replace_file(path, "", table);
        tell(step, steps, total);
    }

    replace_file("outputs/table.csv", "step,total\n", table);
    const char *quote = name[0] != '\0' ? "\"" : "";
    snprintf(result, sizeof result, "{\"total\": %ld, \"started_at\": %ld, \"resumed_from\": %s%s%s}\n", total,
             started_at, quote, name[0] != '\0' ? name : "null", quote);
    replace_file("result.json", "", result);
    free(table);
    free(task);
    return 0;
}
