// The samples that a network does worst in an evaluation, as a report shows them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/data/loader.h"
#include "core/json/json.h"

namespace mslua {

class Groups;

// How a sample's first column is shown.
struct SampleForm {
  // Of a picture, for all channels or each: what the network gets is level * scale + shift, with levels from 0 to 255.
  // Empty: not known, the least value is black and the greatest white.
  std::vector<double> scale, shift;
  std::vector<std::string> characters;  // what ids stand for; empty: not known
};

// Outputs of an evaluation's graph that have a number for each row of the batch, and are not summed.
inline constexpr char kSampleOutput[] = "sample:";
inline constexpr char kSampleLoss[] = "sample:loss", kSamplePrediction[] = "sample:prediction",
                      kSampleConfidence[] = "sample:confidence";

// What those outputs give for a batch; one that the graph does not have has no data.
struct SampleNumbers {
  TensorView loss, prediction, confidence;
};

class WorstSamples {
 public:
  static constexpr size_t kMost = 16;
  explicit WorstSamples(SampleForm form) : form_(std::move(form)) {}

  void Clear() { kept_.clear(); }
  // Keeps of these rows and those before the worst: the highest loss, NaN before all; without losses those whose
  // prediction is wrong with the highest confidence.
  void Add(const data::Batch& batch, const SampleNumbers& numbers);
  // The worst first, each an object: "sample" (where it is in its source), "loss" (null: not finite), "label",
  // "prediction" and "confidence" as far as they are known, and one of "picture" (a PNG file in base64), "text",
  // "values" (the first of them). With `groups`, of all ranks, on each of them.
  StatusOr<Json> List(const data::Pipeline& pipeline, Groups* groups) const;

 private:
  struct Sample {
    double badness = 0;
    int64_t batch = 0, row = 0;
    double loss = 0, prediction = -1, confidence = -1, label = -1;  // -1: not known
    TensorType type;
    std::vector<char> value;
  };
  Json Describe(const Sample& sample, const std::string& place, bool has_loss) const;
  void Show(const Sample& sample, Json* json) const;

  const SampleForm form_;
  bool has_loss_ = false;
  std::vector<Sample> kept_;  // the worst first
};

}  // namespace mslua
