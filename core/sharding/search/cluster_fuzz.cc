// Descriptions of clusters.
#include <cstdint>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "core/sharding/search/cluster.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  static const mslua::Mesh mesh = *mslua::Mesh::Of(4);
  (void)mslua::ParseCluster(text, mesh);
  return 0;
}
