// Runs a scalar program over tensors with SIMD (Highway, dispatched at run time): the fast path of elementwise
// operators and fused chains. A tile of every value stays in the first-level cache while its instructions run.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/base/shape.h"
#include "core/op/formula.h"

namespace mslua {

// Elements of a tile: 2 KiB a value.
inline constexpr int64_t kTileElements = 512;
// The most inputs, constants and instructions of a program together (the fusion pass splits longer chains).
inline constexpr int32_t kMaxTileSlots = 64;

// One instruction with its operands resolved to slots. Public for the SIMD code only.
struct TileInstr {
  ScalarOp op;
  int32_t out;      // slot
  int32_t args[3];  // slots
};

// A program prepared for fixed types. f32 arithmetic; 16-bit floats, bool and integers are converted at the
// edges. Inputs broadcast as NumPy does. An output may lie over an input of its own shape and type.
class TileProgram {
 public:
  // False where the arithmetic must not be f32 (f64 anywhere, or integers without a float), and for programs that are
  // too long.
  static bool Supports(const ScalarProgram& program, absl::Span<const TensorType> inputs,
                       absl::Span<const TensorType> outputs);

  // `kept`: outputs, by number, that nobody reads before they have left the caches. Where one lies over no input it is
  // written past them, so that the processor does not first read what is written over.
  TileProgram(const ScalarProgram& program, absl::Span<const TensorType> inputs, absl::Span<const TensorType> outputs,
              absl::Span<const int64_t> kept = {});

  // Bytes that Run needs in `scratch`: the tiles of every thread.
  int64_t scratch_bytes() const { return threads_ * thread_bytes_; }
  void Run(const void* const* inputs, void* const* outputs, void* scratch) const;

 private:
  // How elements of an input lie under the output's index.
  struct Input {
    DType dtype;
    bool used = false;
    bool scalar = false;   // one element
    bool dense = false;    // the output's own shape
    Shape sizes, strides;  // otherwise: merged dimensions; stride 0 repeats
    int32_t slot = -1;
    int32_t last_read = -1;  // the last instruction that reads it
  };
  static std::vector<ScalarInstr> Lower(const ScalarProgram& program);
  void Schedule(const std::vector<ScalarInstr>& code, const std::vector<int32_t>& results);
  bool WritesDirectly(size_t output, const void* const* inputs, void* const* outputs) const;
  bool WritesPastCaches(size_t output, const void* const* inputs, void* const* outputs) const;
  void RunRange(const void* const* inputs, void* const* outputs, float* tiles, int64_t begin, int64_t end) const;
  void LoadBroadcast(const Input& input, const void* data, int64_t begin, int64_t n, float* out) const;

  std::vector<Input> inputs_;
  std::vector<DType> output_types_;
  std::vector<int32_t> results_;      // slots
  std::vector<int32_t> result_made_;  // by which instruction; -1: by none, or for two results
  std::vector<bool> result_kept_;
  std::vector<std::pair<int32_t, float>> constants_;  // slots that hold one number
  std::vector<bool> slot_is_scalar_;
  std::vector<TileInstr> numbers_;  // run once, before any tile
  std::vector<TileInstr> code_;
  int32_t converted_ = -1;  // an input that is the only result as f32, which needs no tile; -1: there is none
  int64_t elements_ = 0;
  int64_t grain_ = 0;
  int32_t slots_ = 0;
  int64_t threads_ = 1;
  int64_t thread_bytes_ = 0;
};

}  // namespace mslua
