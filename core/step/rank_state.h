// What the graphs of one rank share: its place among the ranks, its parameters and its optimizers' state.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/optional.h"
#include "core/base/status.h"
#include "core/runtime/store.h"
#include "core/step/global_view.h"
#include "core/step/parameter.h"

namespace mslua {

class Groups;

// One thread uses it.
struct RankState {
  int rank = 0, ranks = 1;
  std::shared_ptr<Groups> groups;  // null: a job of one rank
  uint64_t seed = 1;               // of first values
  Store store;
  absl::flat_hash_set<std::string> parameter_keys;  // given out by KeyOf
  // State tensors of optimizers by key, "moments.Net/w": shared by the graphs that train with one optimizer. Those of a
  // second optimizer of the same parameter have the key "moments.Net/w#2".
  absl::flat_hash_map<std::string, std::shared_ptr<ParameterData>> optimizer_states;
  std::unique_ptr<GlobalView> view;  // null: each rank has a program of its own
};

// Fixes the parameter's key: its name, or "name#2" where another parameter has that.
const std::string& KeyOf(RankState& state, ParameterData& parameter);
// The value in the store, made on first use. Random values are a function of (seed, name, index) alone.
StatusOr<TensorView> ValueOf(RankState& state, ParameterData& parameter);
// What this rank keeps of a parameter of which ranks keep parts; null: it has all of it. An error where the ranks of
// another pipeline stage keep it.
StatusOr<const GlobalView::Sharded*> PartOf(const RankState& state, const ParameterData& parameter);
// An error where this rank has not all of it: what a rank computes by itself needs all.
Status CheckWhole(const RankState& state, const ParameterData& parameter);
// CRC-32C of the whole first value. None: it came from a file, or from memory that is given back.
StatusOr<absl::optional<uint32_t>> ChecksumOfFirstValue(const RankState& state, ParameterData& parameter);
// A tensor over the store's memory, which it does not own: for the duration of a call. The rank has all of it.
StatusOr<Tensor> BorrowValue(RankState& state, ParameterData& parameter);
// Replaces the value; types must agree.
Status SetValue(RankState& state, ParameterData& parameter, const Tensor& value);

}  // namespace mslua
