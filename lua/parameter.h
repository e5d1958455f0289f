// Parameters and running statistics: named values of the session's store that Lua holds handles to.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/shape.h"
#include "core/base/status.h"
#include "core/graph/graph.h"
#include "lua/tensor.h"

struct lua_State;

namespace mslua {

// How the first value is made: MindSpore's initializers, their names and defaults.
struct Initializer {
  std::string kind = "zeros";
  double sigma = 0.01, mean = 0, scale = 0.07, gain = 1, negative_slope = 0, a = -2, b = 2, value = 0;
  std::string mode = "fan_in", nonlinearity = "leaky_relu";
  Tensor constant;  // kind "tensor"
};

struct ParameterData {
  std::string name;  // the path from the root that is trained; what checkpoints call it
  std::string key;   // in the store and in graphs: the name that it has on first use, made unique
  std::string kind;  // kParameter or kState of core/graph
  TensorType type;
  Initializer init;
  bool requires_grad = true, layerwise_parallel = false, parallel_optimizer = true;
  int64_t comm_fusion = 1;
  // Of a state that is this rank's part [slice_begin, slice_begin + elements) of a flat tensor of slice_of elements,
  // what is behind its end being padding; slice_of 0: whole.
  int64_t slice_begin = 0, slice_of = 0;
  bool replica = false;  // a lower rank has the same slice
  // Of an optimizer's state: the key of its parameter, and what of it ("moments").
  std::string state_of, state_kind;
  // The user's line that made it; of an optimizer's state, its parameter's. Null or without a file: not known.
  std::shared_ptr<const Location> made_at;
  // A training step replaces it by assign: running statistics. Ranks that train on batches of their own then have
  // values of their own.
  bool assigned = false;

  // Whether data parallel ranks may have different values of what they do not train: a state, or what is assigned.
  // Not of an optimizer's state.
  bool MayVary() const { return !layerwise_parallel && (kind == kState || assigned); }
};

// Fixes the parameter's key: its name, or "name#2" where another parameter has that.
const std::string& KeyOf(Session& session, ParameterData& parameter);
// The value in the store, made on first use. Random values are a function of (seed, name, index) alone.
StatusOr<TensorView> ValueOf(Session& session, ParameterData& parameter);
// A tensor over the store's memory, which it does not own: for the duration of a call.
StatusOr<Tensor> BorrowValue(Session& session, ParameterData& parameter);
// Replaces the value; types must agree.
Status SetValue(Session& session, ParameterData& parameter, const Tensor& value);

// The names of initializers.
const std::vector<std::string>& InitializerNames();
// What is wrong with the name of an initializer, in this library's spelling or MindSpore's; empty: nothing.
std::string InitializerProblem(const std::string& name);
// Reads the initializer at `index`: a number, a tensor, a nested list, a name, or {name, field = ...}. A tensor
// or list also gives the type when `has_type` is false.
Status ReadInitializer(Session& session, lua_State* L, int index, bool has_type, TensorType* type, Initializer* init);
// Fills dense memory with the part at `begin` of a value of type `whole`. `stream` is the name that random values
// belong to: a part has the numbers that the whole has there.
Status Fill(const Initializer& init, uint64_t seed, const std::string& stream, const TensorType& whole,
            absl::Span<const int64_t> begin, const TensorView& part);
// The same of all of it.
Status Fill(const Initializer& init, uint64_t seed, const std::string& stream, const TensorView& out);

// Entries of the module: core.parameter, core.state, and the kind's metatable.
void OpenParameters(lua_State* L);

}  // namespace mslua
