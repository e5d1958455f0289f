#include "core/kernels/cuda/library_kernel.h"

#include <map>

namespace mslua {
namespace {

std::map<std::string, LibraryFn>& Table() {
  static auto* const table = new std::map<std::string, LibraryFn>;
  return *table;
}

}  // namespace

bool RegisterLibraryKernel(const char* op, LibraryFn make) { return Table().emplace(op, make).second; }

StatusOr<LibraryProgram> FindLibraryKernel(const std::string& op, const OpSpec& spec, const LibraryOptions& options) {
  const auto at = Table().find(op);
  if (at == Table().end()) return LibraryProgram();
  StatusOr<LibraryProgram> made = at->second(spec, options);
  if (absl::IsNotFound(made.status()) || absl::IsUnimplemented(made.status())) return LibraryProgram();
  return made;
}

}  // namespace mslua
