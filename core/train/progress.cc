#include "core/train/progress.h"

namespace mslua {

void Progress::Set(const std::string& name, double value) {
  for (auto& f : found) {
    if (f.first == name) {
      f.second = value;
      return;
    }
  }
  found.emplace_back(name, value);
}

const double* Progress::Find(const std::string& name) const {
  for (const auto& f : found) {
    if (f.first == name) return &f.second;
  }
  return nullptr;
}

void Progress::Stop() {
  stopped = true;
  trainer->RequestStop();
}

}  // namespace mslua
