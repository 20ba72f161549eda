// TALLY_CHECK aborts when one of our own invariants is broken; it is never the answer to bad input.
// It stays on in every build: a scheduler that goes on with a broken block pool corrupts answers.
#ifndef TALLY_ENGINE_BASE_CHECK_H_
#define TALLY_ENGINE_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>

// Usage: TALLY_CHECK(length <= capacity, "length %u capacity %u", length, capacity);
#define TALLY_CHECK(condition, ...)                                                      \
  do {                                                                                   \
    if (__builtin_expect(!(condition), 0)) {                                             \
      std::fprintf(stderr, "%s:%d: check failed: %s: ", __FILE__, __LINE__, #condition); \
      std::fprintf(stderr, __VA_ARGS__);                                                 \
      std::fputc('\n', stderr);                                                          \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

#endif  // TALLY_ENGINE_BASE_CHECK_H_
