#include "attach/server/snapshot.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace mslua::endpoint {
namespace {

std::string HostName() {
  char name[256] = "?";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

int64_t ResidentBytes() {
  std::FILE* f = std::fopen("/proc/self/statm", "re");
  if (f == nullptr) return 0;
  long long total = 0, resident = 0;
  const int read = std::fscanf(f, "%lld %lld", &total, &resident);
  std::fclose(f);
  return read == 2 ? resident * sysconf(_SC_PAGESIZE) : 0;
}

Snapshots::Snapshots(const TrainingView& view, const Boundary& boundary)
    : view_(view),
      boundary_(boundary),
      host_(HostName()),
      report_(view.trainer->executable()->report()),
      graph_(ToString(view.trainer->executable()->graph())) {
  for (const auto& e : view.store->entries())
    stored_.push_back({e->name, e->kind, e->type, view.place ? view.place(e->name) : TensorPlace()});
  store_bytes_ = view.store->bytes();
}

std::vector<float> Snapshots::Losses(int64_t most, int64_t* first) const {
  TrainProgress& p = view_.trainer->progress();
  const int64_t done = p.step.load();
  const int64_t n = std::min({most, done - p.first_step, TrainProgress::kLosses - 1});
  std::vector<float> losses;
  for (int64_t s = done - n; s < done; ++s) losses.push_back(p.losses[s % TrainProgress::kLosses].load());
  *first = done - n + 1;
  return losses;
}

}  // namespace mslua::endpoint
