// Datasets in Lua: core.dataset and the Dataset kind.
#pragma once

#include <memory>

#include "core/data/loader.h"
#include "lua/object.h"
#include "lua/session.h"

namespace mslua {

// What reading one sample after another needs: epoch 0 and working memory.
struct SampleReading {
  data::Pipeline::Epoch epoch;
  data::Pipeline::Scratch scratch;
};

// A description, and the opened pipeline once somebody has asked for it.
struct DatasetHandle {
  data::Dataset description;
  int64_t batch = 0;  // rows of the largest; 0: not batched
  int64_t seed = -1;  // -1: the session's, when it is opened
  std::shared_ptr<const data::Pipeline> pipeline;
  int64_t feeds = 1;                       // of `pipeline`
  std::shared_ptr<SampleReading> reading;  // of single samples; null before the first
  int64_t workers = 0;                     // threads that read and transform; 0: this rank's cores less one, 1 to 8
  Location made_at;                        // the user's line, for errors; without a file: not known
  bool ragged = false;                     // samples may differ in shape: row() reads them
  bool noted = false;                      // a note has said which samples do not count once

  // Opens it on the first call, and when the session's feed has changed since; notices go to stderr. Its seed is what
  // the session's is now.
  StatusOr<std::shared_ptr<const data::Pipeline>> Open(Session& session);
  // The same for all samples, as if this were the only rank.
  StatusOr<std::shared_ptr<const data::Pipeline>> OpenWhole(Session& session);
  // Whether the opened pipeline gives a part of each global batch: neither one feed, nor sharded by hand, nor a
  // sequence.
  bool Divided() const;
  // Whether every rank gets the same samples: a sequence, of which nobody can take a part.
  bool Repeated() const;
  data::LoaderOptions ForLoader() const;
};

template <>
struct KindName<std::shared_ptr<DatasetHandle>> {
  static constexpr const char* value = "Dataset";
};

void OpenDatasets(lua_State* L);

}  // namespace mslua
