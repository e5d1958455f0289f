#include "launch/shared_step.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

namespace mslua {
namespace {

constexpr char kName[] = "shared.step";
constexpr size_t kBytes = sizeof(std::atomic<int64_t>);

Status Failed() { return absl::ErrnoToStatus(errno, "memory for the step that a job has done"); }

}  // namespace

StatusOr<std::unique_ptr<SharedStep>> SharedStep::Make(ImageKeeper& keeper) {
  const Fd memory(memfd_create("mslua step", MFD_CLOEXEC));
  if (!memory || ftruncate(memory.get(), kBytes) != 0) return Failed();
  ASSIGN_OR_RETURN(auto step, Map(memory));
  step->Set(kNone);
  RETURN_IF_ERROR(keeper.Put(kName, memory.get()));
  return step;
}

StatusOr<std::unique_ptr<SharedStep>> SharedStep::Find(ImageKeeper& keeper) {
  ASSIGN_OR_RETURN(const Fd memory, keeper.Get(kName));
  if (!memory) return nullptr;
  return Map(memory);
}

StatusOr<std::unique_ptr<SharedStep>> SharedStep::Map(const Fd& memory) {
  void* const at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (at == MAP_FAILED) return Failed();
  return std::unique_ptr<SharedStep>(new SharedStep(static_cast<std::atomic<int64_t>*>(at)));
}

SharedStep::~SharedStep() { munmap(step_, kBytes); }

}  // namespace mslua
