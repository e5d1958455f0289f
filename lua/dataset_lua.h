// Datasets in Lua: core.dataset and the Dataset kind.
#pragma once

#include <memory>

#include "core/data/loader.h"
#include "lua/object.h"

namespace mslua {

// A description, and the opened pipeline once somebody has asked for it.
struct DatasetHandle {
  data::Dataset description;
  int64_t batch = 0;  // 0: not batched
  int64_t seed = -1;  // -1: the session's, when it is opened
  std::shared_ptr<const data::Pipeline> pipeline;

  // Opens it on the first call; notices go to stderr.
  StatusOr<std::shared_ptr<const data::Pipeline>> Open(Session& session);
};

template <>
struct KindName<std::shared_ptr<DatasetHandle>> {
  static constexpr const char* value = "Dataset";
};

void OpenDatasets(lua_State* L);

}  // namespace mslua
