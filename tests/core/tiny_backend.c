/* A backend of a few lines that gets one thing wrong, chosen by CASE at compile time.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "anyhal/backend.h"
#include "anyhal/fingerprints.h"
#include "anyhal/ops.h"

#define RIGHT 0
#define WRONG_ENTRY 1     /* the symbol has another name */
#define TOO_NEW 2         /* speaks 0.9 only and says so */
#define TOO_OLD 3         /* speaks 0.0 only and says so */
#define CHOSE_NEWER 4     /* accepts and then chooses 0.9 */
#define ZERO_VERSION 5    /* leaves the version 0 */
#define SHORT_TABLE 6     /* the table ends after op_query */
#define NULL_SLOT 7       /* op_enqueue is NULL */
#define NULL_QUEUE 8      /* not synchronous, and host_wait is NULL */
#define RESERVED 9        /* a reserved word of the reply is not zero */
#define UNKNOWN_FLAG 10   /* a reply flag from the future */
#define NO_TABLE 11       /* the table pointer is NULL */
#define SHORT_REPLY 12    /* claims a reply of 16 bytes */
#define SILENT_FAILURE 13 /* fails without a word */
#define NO_DEVICES 14     /* has none, which is fine */
#define MANY_DEVICES 15   /* says it has four thousand million */
#define NO_KINDS 16       /* lists a device without memory */
#define LONGER_TABLE 17   /* built with a header that has more slots */
#define OTHER_RANGE 18    /* chooses 0.3 and says that it offers 0.4 to 0.9 */
#define UNTERMINATED 19   /* an error text without its end */
#define NO_REGISTRY 20    /* registry version 0 */
#define ENDLESS_TEXT 21   /* device texts without their ends */
#define HUGE_TABLE 22     /* the table's size is garbage */
#define EMPTY_TABLE 23    /* the table's size is 0 */
#define HUGE_REPLY 24     /* claims a reply of four thousand million bytes */
#define TABLE_FLAGS 25    /* a table flag from the future */
#define SHORT_ASYNC 26    /* not synchronous, and the table ends before the queue slots */
#define ODD_STATUS 27     /* answers a status that does not exist */
#define NO_BUILD 28       /* names no build, which is fine */
#define OWN_PREFIX 29     /* fails and says itself what failed and where */
#define STRANGE_BYTES 30  /* fails with a text that is no UTF-8 and has line ends */
#define DISJOINT 31       /* offers 0.4 to 0.9 and chooses within */
#define ODD_PREPARE 32    /* op_prepare answers a status that does not exist */

#define CACHED 33       /* says in its device's name whether an artefact was kept */
#define NO_PRINT 34     /* gives no fingerprints */
#define CUT_PRINT 35    /* fingerprints that end in the middle of a record */
#define ODD_PRINT 36    /* fingerprints of another form */
#define LONG_PRINT 37   /* four thousand million fingerprints */
#define GREEDY_PRINT 38 /* a record with more fields than there are words */
#define ODD_SIZE 39     /* a record whose size no compiler gives */
#define SMALL_SIZE 40   /* a record that its own fields do not fit into */
#define HALF_SLOT 41    /* the table ends in the middle of a slot */

#ifndef CASE
#define CASE RIGHT
#endif

static const anyhal_services* services;

static anyhal_status refuse(anyhal_error* error, anyhal_status status, const char* text) {
  return services->error_text(services->context, error, status, ANYHAL_REASON_NONE, text);
}

static anyhal_memory_kind kind;

static anyhal_status device_list(anyhal_self* self, anyhal_device_info* infos, uint32_t capacity,
                                 uint32_t* out_total, anyhal_error* error) {
  (void)self, (void)error;
  *out_total = CASE == NO_DEVICES ? 0 : CASE == MANY_DEVICES ? UINT32_MAX : 1;
  if (CASE == NO_DEVICES || capacity == 0) return ANYHAL_STATUS_OK;
  kind.size = sizeof kind;
  kind.flags = ANYHAL_MEMORY_DEVICE_LOCAL | ANYHAL_MEMORY_HOST_VISIBLE | ANYHAL_MEMORY_COHERENT |
               ANYHAL_MEMORY_STABLE_ADDRESS;
  kind.offset_alignment = kind.base_alignment = 1;
  kind.granularity = 1;
  kind.heap_bytes = 1u << 20;
  infos[0].id = 1;
  infos[0].kinds = &kind;
  infos[0].kind_count = CASE == NO_KINDS ? 0 : 1;
  memcpy(infos[0].name, "Tiny", sizeof "Tiny");
  if (CASE == CACHED) {
    char kept[8] = "made";
    uint64_t bytes = sizeof kept;
    if (services->cache_get(services->context, "key", kept, &bytes) != ANYHAL_STATUS_OK)
      services->cache_put(services->context, "key", "kept", 5);
    memcpy(infos[0].name, kept, sizeof "kept");
  }
  if (CASE == ENDLESS_TEXT) {
    memset(infos[0].name, 'x', sizeof infos[0].name);
    memset(infos[0].arch, 'y', sizeof infos[0].arch);
  }
  return ANYHAL_STATUS_OK;
}

static anyhal_status device_open(anyhal_self* self, uint64_t id, const anyhal_setting* options,
                                 uint32_t option_count, anyhal_device** out_device,
                                 uint64_t* out_address_block, anyhal_error* error) {
  (void)id, (void)options, (void)option_count, (void)error;
  *out_device = (anyhal_device*)self;
  *out_address_block = 1;
  return ANYHAL_STATUS_OK;
}

static anyhal_status memory_alloc(anyhal_device* device, const anyhal_memory_request* request,
                                  anyhal_memory_block* out_block, anyhal_error* error) {
  (void)device, (void)request, (void)out_block;
  return refuse(error, ANYHAL_STATUS_OUT_OF_MEMORY, "there is no memory at all");
}

static anyhal_status op_query(anyhal_device* device, const anyhal_op_desc* desc,
                              anyhal_verdict* verdict, anyhal_error* error) {
  (void)device, (void)desc, (void)error;
  verdict->support = ANYHAL_SUPPORT_NO;
  verdict->reason = ANYHAL_REASON_OP;
  return ANYHAL_STATUS_OK;
}

static anyhal_status op_prepare(anyhal_device* device, const anyhal_op_desc* desc,
                                anyhal_plan** out_plan, const anyhal_prepared** out_prepared,
                                anyhal_error* error) {
  (void)device, (void)desc, (void)out_plan, (void)out_prepared, (void)error;
#ifdef SAYS
  return refuse(error, ANYHAL_STATUS_UNSUPPORTED, SAYS);
#else
  return CASE == ODD_PREPARE ? (anyhal_status)4711 : ANYHAL_STATUS_UNSUPPORTED;
#endif
}

static anyhal_status op_enqueue(anyhal_queue* queue, anyhal_plan* plan, const anyhal_call* call,
                                anyhal_error* error) {
  (void)queue, (void)plan, (void)call;
  return refuse(error, ANYHAL_STATUS_INTERNAL, "tiny: a plan from nowhere");
}

static anyhal_status release_object(anyhal_self* self, uint32_t object_kind, uint64_t object,
                                    uint32_t flags, anyhal_error* error) {
  (void)self, (void)object_kind, (void)object, (void)flags, (void)error;
  return ANYHAL_STATUS_OK;
}

/* One slot more than this header knows, as a later header would have. */
static struct {
  anyhal_table table;
  void (*from_the_future)(void);
} tables;

static void fill_table(void) {
  anyhal_table* t = &tables.table;
  t->size = CASE == LONGER_TABLE  ? sizeof tables
            : CASE == SHORT_TABLE ? (uint32_t)offsetof(anyhal_table, op_prepare)
            : CASE == SHORT_ASYNC ? (uint32_t)offsetof(anyhal_table, queue_create)
            : CASE == HUGE_TABLE  ? UINT32_MAX - 3
            : CASE == EMPTY_TABLE ? 0
            : CASE == HALF_SLOT   ? sizeof *t - 4
                                  : sizeof *t;
  t->flags = CASE == TABLE_FLAGS ? 1u << 30 : 0;
  t->device_list = device_list;
  t->device_open = device_open;
  t->memory_alloc = memory_alloc;
  t->op_query = op_query;
  t->op_prepare = op_prepare;
  t->op_enqueue = CASE == NULL_SLOT ? NULL : op_enqueue;
  t->release = release_object;
#ifdef WITHOUT
  t->WITHOUT = NULL;
#endif
}

#if CASE == WRONG_ENTRY
#define ENTRY anyhal_backend_mian
#else
#define ENTRY anyhal_backend_main
#endif

#define VERSION(minor) ((ANYHAL_ABI_MAJOR << 16) | (minor))

static anyhal_status say_no(anyhal_error* error) {
  if (CASE == TOO_NEW)
    return refuse(error, ANYHAL_STATUS_ABI_MISMATCH,
                  "tiny: this backend speaks contract 0.9, the core 0.3; upgrade the core");
  if (CASE == TOO_OLD)
    return refuse(error, ANYHAL_STATUS_ABI_MISMATCH,
                  "tiny: this backend speaks contract 0.0, the core 0.3; upgrade the backend");
  if (CASE == ODD_STATUS) return (anyhal_status)4711;
  if (CASE == OWN_PREFIX)
    return refuse(error, ANYHAL_STATUS_NOT_FOUND, "opening on tiny:0: no card; insert one");
  if (CASE == STRANGE_BYTES)
    return refuse(error, ANYHAL_STATUS_NOT_FOUND, "no\xff\xfe card\n; insert one");
  if (CASE == UNTERMINATED) memset(error->text, 'z', sizeof error->text);
  return ANYHAL_STATUS_NOT_FOUND;
}

/* Says another size of anyhal_device_info: the record of its size with more fields than an error.
 */
static void resize(uint64_t* words, uint64_t bytes) {
  for (uint32_t i = 1; i < ANYHAL_FINGERPRINT_COUNT; ++i)
    if (words[i] >> 32 == sizeof(anyhal_device_info) && (uint32_t)words[i] > 4 &&
        (uint32_t)words[i] < 100)
      words[i] = bytes << 32 | (uint32_t)words[i];
}

static void fill_fingerprints(anyhal_reply* reply) {
  static uint64_t words[ANYHAL_FINGERPRINT_COUNT];
  memcpy(words, anyhal_fingerprints, sizeof words);
  if (CASE == ODD_PRINT) words[0] += 1;
  if (CASE == GREEDY_PRINT) words[2] |= UINT32_MAX;
  if (CASE == ODD_SIZE) resize(words, 257);
  if (CASE == SMALL_SIZE) resize(words, 8);
  reply->fingerprints = CASE == NO_PRINT ? NULL : words;
  reply->fingerprint_count = CASE == CUT_PRINT    ? ANYHAL_FINGERPRINT_COUNT - 1
                             : CASE == LONG_PRINT ? UINT32_MAX
                                                  : ANYHAL_FINGERPRINT_COUNT;
}

ANYHAL_EXPORT anyhal_status ENTRY(const anyhal_hello* hello, anyhal_reply* reply,
                                  anyhal_error* error) {
  services = hello->services;
  fill_table();
  if (CASE == TOO_NEW || CASE == TOO_OLD || CASE == SILENT_FAILURE || CASE == UNTERMINATED ||
      CASE == ODD_STATUS || CASE == OWN_PREFIX || CASE == STRANGE_BYTES)
    return say_no(error);
  reply->size = CASE == SHORT_REPLY ? 16 : CASE == HUGE_REPLY ? UINT32_MAX : reply->size;
  reply->flags = CASE == NULL_QUEUE || CASE == SHORT_ASYNC ? 0 : ANYHAL_REPLY_SYNCHRONOUS;
  if (CASE == UNKNOWN_FLAG) reply->flags |= 1u << 30;
  reply->chosen = CASE == CHOSE_NEWER    ? VERSION(9)
                  : CASE == DISJOINT     ? VERSION(5)
                  : CASE == ZERO_VERSION ? 0
                                         : ANYHAL_ABI_VERSION;
  reply->abi_min = CASE == OTHER_RANGE || CASE == DISJOINT ? VERSION(4) : reply->chosen;
  reply->abi_max = CASE == OTHER_RANGE || CASE == DISJOINT ? VERSION(9) : reply->chosen;
  reply->registry_version = CASE == NO_REGISTRY ? 0 : ANYHAL_REGISTRY_VERSION;
  reply->table = CASE == NO_TABLE ? NULL : &tables.table;
  reply->self = (anyhal_self*)&tables;
  reply->build_id = CASE == NO_BUILD ? NULL : "tiny 1";
  reply->reserved = CASE == RESERVED;
  fill_fingerprints(reply);
  return ANYHAL_STATUS_OK;
}
