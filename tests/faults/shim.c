/* A disk and a clock that fail on demand, for one broker process: preloaded with LD_PRELOAD.
 *
 * Owns the calls between the broker and the files of its data directory (MQ9_SHIM_DATA), and the wall clock. What is
 * to go wrong is said in a shared file of numbers (MQ9_SHIM_CONTROL), whose layout shim.py repeats. With
 * MQ9_SHIM_UNDO, a folder, it writes down how to undo every change that has not been synced, so that a kill can
 * be turned into a power cut. Knows nothing of what the files hold.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct control {
    int64_t clock_offset_ns; /* added to the wall clock */
    int64_t write_errno;     /* writes fail with this */
    int64_t read_errno;      /* reads fail with this */
    int64_t sync_errno;      /* syncs fail with this */
    int64_t open_errno;      /* creating and opening for writing fail with this */
    int64_t lose_writes;     /* writes report success and do nothing */
    int64_t lie_about_syncs; /* syncs report success and do nothing */
    int64_t hits;            /* calls that were tampered with */
    int64_t overlong_writes; /* 1: writes report more bytes than they were given; 2: those of upkeep's thread alone */
};

#define MOST_FILES 65536
enum kind { OTHER, FILE_OF_DATA, FOLDER_OF_DATA };

struct file {
    enum kind kind;
    int undo;         /* where the changes of this file are written down; -1: nowhere */
    uint64_t inode;
};

static struct control none;
static struct control *control = &none;
static const char *data = "";
static size_t data_length;
static const char *undo_folder;
static struct file files[MOST_FILES];
static int names_log = -1;
static uint64_t names_logged, graves;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

static int fails(int64_t error) {
    if (!error) return 0;
    __atomic_add_fetch(&control->hits, 1, __ATOMIC_RELAXED);
    errno = (int)error;
    return 1;
}

/* The wall clock. Rust's and glibc's calls both end in the vDSO, so its entry is what has to be replaced. */

static int shifted_clock_gettime(clockid_t clock, struct timespec *time) {
    long outcome = syscall(SYS_clock_gettime, clock, time);
    if (outcome == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = time->tv_sec * INT64_C(1000000000) + time->tv_nsec;
        ns += __atomic_load_n(&control->clock_offset_ns, __ATOMIC_RELAXED);
        time->tv_sec = ns / 1000000000;
        time->tv_nsec = ns % 1000000000;
    }
    return (int)outcome;
}

static void take_clock(void) {
#if defined(__x86_64__)
    const char *name = "__vdso_clock_gettime", *version = "LINUX_2.6";
    unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0}; /* mov rax, to; jmp rax */
    uint64_t to = (uint64_t)shifted_clock_gettime;
    memcpy(jump + 2, &to, sizeof to);
#elif defined(__aarch64__)
    const char *name = "__kernel_clock_gettime", *version = "LINUX_2.6.39";
    unsigned char jump[16] = {0x50, 0, 0, 0x58, 0, 0x02, 0x1f, 0xd6}; /* ldr x16, 8; br x16; to */
    uint64_t to = (uint64_t)shifted_clock_gettime;
    memcpy(jump + 8, &to, sizeof to);
#else
#error "the clock can be shifted on x86_64 and aarch64 only"
#endif
    void *vdso = dlopen("linux-vdso.so.1", RTLD_NOW | RTLD_NOLOAD);
    unsigned char *entry = vdso ? dlvsym(vdso, name, version) : NULL;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)entry & ~(page - 1);
    if (!entry || mprotect((void *)start, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC)) {
        fprintf(stderr, "shim: the clock cannot be shifted here\n");
        _exit(97);
    }
    memcpy(entry, jump, sizeof jump);
    __builtin___clear_cache((char *)entry, (char *)entry + sizeof jump);
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("MQ9_SHIM_CONTROL");
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0) : -1;
    if (fd < 0) return;
    void *shared = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (shared == MAP_FAILED) return;
    control = shared;
    if (getenv("MQ9_SHIM_DATA")) data = getenv("MQ9_SHIM_DATA");
    data_length = strlen(data);
    undo_folder = getenv("MQ9_SHIM_UNDO");
    if (undo_folder) {
        char name[4096];
        snprintf(name, sizeof name, "%s/names", undo_folder);
        names_log = (int)syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    if (getenv("MQ9_SHIM_CLOCK")) take_clock();
}

/* The undo log: for every file of the data directory, by inode, a header (how much of it is settled) and what each
 * write has replaced; for names, a line for each change. */

static const char *inside(const char *path) {
    if (!data_length || strncmp(path, data, data_length) || path[data_length] != '/') return NULL;
    return path + data_length + 1;
}

static void log_name(const char *line) {
    if (names_log < 0) return;
    if (write(names_log, line, strlen(line)) < 0) abort();
    names_logged++;
}

static int undo_of(int fd, int created) {
    struct stat status;
    char name[4096];
    if (!undo_folder || fstat(fd, &status)) return -1;
    files[fd].inode = status.st_ino;
    snprintf(name, sizeof name, "%s/%llu", undo_folder, (unsigned long long)status.st_ino);
    int flags = O_RDWR | O_CREAT | O_CLOEXEC | (created ? O_TRUNC : 0);
    int undo = (int)syscall(SYS_openat, AT_FDCWD, name, flags, 0600);
    uint64_t settled = 8;
    if (undo < 0 || (lseek(undo, 0, SEEK_END) < 8 && write(undo, &settled, 8) != 8)) abort();
    return undo;
}

static int opened(const char *path, int flags, int mode) {
    const char *name = inside(path);
    int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT);
    if (name && writes && fails(control->open_errno)) return -1;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (fd < 0 || fd >= MOST_FILES || !data_length) return fd;
    pthread_mutex_lock(&lock);
    files[fd].kind = OTHER;
    files[fd].undo = -1;
    if (!strcmp(path, data)) files[fd].kind = FOLDER_OF_DATA;
    if (name && writes && strcmp(name, "LOCK")) {
        int created = (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
        files[fd].kind = FILE_OF_DATA;
        files[fd].undo = undo_of(fd, created);
        char line[512];
        snprintf(line, sizeof line, "C %s\n", name);
        if (created) log_name(line);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

static int mode_of(int flags, va_list more) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0; }

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    int mode = mode_of(flags, more);
    va_end(more);
    return opened(path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    int mode = mode_of(flags, more);
    va_end(more);
    return opened(path, flags, mode);
}

int close(int fd) {
    if (fd >= 0 && fd < MOST_FILES && files[fd].kind != OTHER) {
        pthread_mutex_lock(&lock);
        if (files[fd].kind == FILE_OF_DATA && files[fd].undo >= 0) syscall(SYS_close, files[fd].undo);
        files[fd].kind = OTHER;
        files[fd].undo = -1;
        pthread_mutex_unlock(&lock);
    }
    return (int)syscall(SYS_close, fd);
}

static enum kind kind_of(int fd) { return fd >= 0 && fd < MOST_FILES ? files[fd].kind : OTHER; }

/* Writes down what a write is going to replace. */
static void keep_old(int fd, size_t count, off64_t offset) {
    int undo = files[fd].undo;
    if (undo < 0) return;
    uint64_t size = 16 + count;
    unsigned char *record = calloc(1, size);
    if (!record) abort();
    uint64_t head[2] = {(uint64_t)offset, count};
    memcpy(record, head, sizeof head);
    syscall(SYS_pread64, fd, record + 16, count, offset);
    pthread_mutex_lock(&lock);
    off64_t end = lseek(undo, 0, SEEK_END);
    if (syscall(SYS_pwrite64, undo, record, size, end) != (long)size) abort();
    pthread_mutex_unlock(&lock);
    free(record);
}

/* What no kernel does: Rust's own code takes it for impossible, and panics. */
static int is_overlong(void) {
    if (!control->overlong_writes) return 0;
    char name[16] = "";
    if (control->overlong_writes == 2 && (prctl(PR_GET_NAME, name), strcmp(name, "mq9-upkeep"))) return 0;
    __atomic_add_fetch(&control->hits, 1, __ATOMIC_RELAXED);
    return 1;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
    if (kind_of(fd) == FILE_OF_DATA) {
        if (fails(control->write_errno)) return -1;
        if (control->lose_writes) {
            __atomic_add_fetch(&control->hits, 1, __ATOMIC_RELAXED);
            return (ssize_t)count;
        }
        keep_old(fd, count, offset);
    }
    long written = syscall(SYS_pwrite64, fd, bytes, count, offset);
    if (kind_of(fd) == FILE_OF_DATA && written > 0 && is_overlong()) written++;
    return written;
}

ssize_t pread64(int fd, void *bytes, size_t count, off64_t offset) {
    if (kind_of(fd) == FILE_OF_DATA && fails(control->read_errno)) return -1;
    return syscall(SYS_pread64, fd, bytes, count, offset);
}

static int synced(int fd, long number) {
    enum kind kind = kind_of(fd);
    if (kind == OTHER) return (int)syscall(number, fd);
    if (fails(control->sync_errno)) return -1;
    if (control->lie_about_syncs) {
        __atomic_add_fetch(&control->hits, 1, __ATOMIC_RELAXED);
        return 0;
    }
    /* What is written while the sync runs is not covered by it. */
    pthread_mutex_lock(&lock);
    uint64_t settled = kind == FILE_OF_DATA && files[fd].undo >= 0 ? (uint64_t)lseek(files[fd].undo, 0, SEEK_END) : 0;
    uint64_t named = names_logged;
    pthread_mutex_unlock(&lock);
    int outcome = (int)syscall(number, fd);
    if (outcome) return outcome;
    pthread_mutex_lock(&lock);
    if (settled && files[fd].undo >= 0 && syscall(SYS_pwrite64, files[fd].undo, &settled, 8, 0) != 8) abort();
    if (kind == FOLDER_OF_DATA && names_log >= 0) {
        char line[64];
        snprintf(line, sizeof line, "D %llu\n", (unsigned long long)named);
        if (write(names_log, line, strlen(line)) < 0) abort();
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }
int fsync(int fd) { return synced(fd, SYS_fsync); }

int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    const char *old = inside(from), *new = inside(to);
    pthread_mutex_lock(&lock);
    int outcome = real(from, to);
    if (!outcome && old && new) {
        char line[1024];
        snprintf(line, sizeof line, "R %s %s\n", old, new);
        log_name(line);
    }
    pthread_mutex_unlock(&lock);
    return outcome;
}

int unlink(const char *path) {
    REAL(int, unlink, const char *);
    const char *name = inside(path);
    if (!name || names_log < 0) return real(path);
    /* Buried rather than removed: a power cut may bring it back. */
    char grave[4096], line[1024];
    pthread_mutex_lock(&lock);
    snprintf(grave, sizeof grave, "%s/grave-%d-%llu", undo_folder, (int)getpid(), (unsigned long long)++graves);
    int outcome = (int)syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, grave, 0);
    if (!outcome) {
        snprintf(line, sizeof line, "U %s %s\n", name, strrchr(grave, '/') + 1);
        log_name(line);
    }
    pthread_mutex_unlock(&lock);
    return outcome;
}
