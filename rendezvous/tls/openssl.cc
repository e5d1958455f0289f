#include "rendezvous/tls/openssl.h"

#include <openssl/err.h>
#include <time.h>

#include "absl/time/time.h"
#include "core/base/printable.h"

namespace mslua {

BioPtr ReaderOf(absl::string_view bytes) {
  return BioPtr(BIO_new_mem_buf(bytes.data(), static_cast<int>(bytes.size())));
}

std::string TakeOpensslError() {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  const char* const text = error == 0 ? nullptr : ERR_reason_error_string(error);
  return text == nullptr ? "unknown error" : text;
}

std::string DateOf(const ASN1_TIME* time) {
  tm parts = {};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) return "an unknown date";
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::FromTM(parts, absl::UTCTimeZone()), absl::UTCTimeZone());
}

std::string NameText(const X509_NAME* name) {
  const BioPtr memory(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(memory.get(), name, 0, XN_FLAG_ONELINE & ~ASN1_STRFLGS_ESC_MSB);
  char* text = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &text);
  return Printable(absl::string_view(text, static_cast<size_t>(size)));
}

}  // namespace mslua
