#include "collectives/host/copy.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mslua {
namespace {

constexpr int64_t kExchanged = 256;  // at a time

#if defined(__x86_64__)
constexpr int64_t kLine = 64, kPage = 4096, kPages = 4;

// Lines of four pages in turn: the processor fetches ahead within a page, so that four fetch more.
__attribute__((target("avx512f"))) void StreamPages(char* to, const char* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kPages * kPage) {
    for (int64_t line = at; line < at + kPage; line += kLine) {
      for (int64_t i = line; i < line + kPages * kPage; i += kPage) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
      }
    }
  }
}

void StreamLines(char* to, const char* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
}

__attribute__((target("avx512f"))) void ExchangeBlocks(char* middle, const char* from, char* to, int64_t bytes) {
  constexpr int kLines = kExchanged / kLine;
  for (int64_t at = 0; at < bytes; at += kExchanged) {
    __m512i going[kLines], coming[kLines];
    for (int i = 0; i < kLines; ++i) going[i] = _mm512_loadu_si512(middle + at + i * kLine);
    for (int i = 0; i < kLines; ++i) coming[i] = _mm512_loadu_si512(from + at + i * kLine);
    for (int i = 0; i < kLines; ++i) _mm512_storeu_si512(to + at + i * kLine, going[i]);
    for (int i = 0; i < kLines; ++i) _mm512_storeu_si512(middle + at + i * kLine, coming[i]);
  }
}
#endif

}  // namespace

void CopyPastCache(char* to, const char* from, int64_t bytes) {
#if defined(__x86_64__)
  const auto advance = [&](int64_t n) { to += n, from += n, bytes -= n; };
  const int64_t head = std::min<int64_t>(bytes, -reinterpret_cast<intptr_t>(to) & (kLine - 1));
  std::memcpy(to, from, head);
  advance(head);
  static const bool wide = __builtin_cpu_supports("avx512f");
  if (wide) {
    const int64_t pages = bytes / (kPages * kPage) * (kPages * kPage);
    StreamPages(to, from, pages);
    advance(pages);
  }
  const int64_t lines = bytes / kLine * kLine;
  StreamLines(to, from, lines);
  advance(lines);
  _mm_sfence();  // such stores are not ordered with the announcements that follow
#endif
  std::memcpy(to, from, bytes);
}

void Exchange(char* middle, const char* from, char* to, int64_t bytes) {
  int64_t at = 0;
#if defined(__x86_64__)
  static const bool wide = __builtin_cpu_supports("avx512f");
  if (wide) {
    at = bytes / kExchanged * kExchanged;
    ExchangeBlocks(middle, from, to, at);
  }
#endif
  for (; at < bytes; at += kExchanged) {
    const int64_t n = std::min(kExchanged, bytes - at);
    std::memcpy(to + at, middle + at, n);
    std::memcpy(middle + at, from + at, n);
  }
}

}  // namespace mslua
