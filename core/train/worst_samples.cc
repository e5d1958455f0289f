#include "core/train/worst_samples.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/data/encode.h"
#include "core/train/agreement.h"

namespace mslua {
namespace {

constexpr char kBadness[] = "badness";  // of a sample while ranks compare theirs
constexpr int64_t kMostValues = 32, kMostText = 2000;

double At(const TensorView& view, int64_t i) { return LoadAsDouble(view.type.dtype, view.data, i); }

TensorType RowType(const TensorType& batch) {
  TensorType row = batch;
  row.shape.erase(row.shape.begin());
  return row;
}

// The class that a row of a label column says; -1: it is none.
double LabelOf(const TensorView& labels, int64_t row) {
  const TensorType type = RowType(labels.type);
  const int64_t n = type.elements();
  if (n == 1) return At(labels, row);
  if (type.rank() != 1 || !IsFloat(type.dtype)) return -1;
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i) {
    if (At(labels, row * n + i) > At(labels, row * n + best)) best = i;
  }
  return static_cast<double>(best);
}

// Where the pixels of a sample lie.
struct Grid {
  int64_t height = 0, width = 0, channels = 1;
  int64_t row = 0, column = 0, channel = 0;  // steps between neighbours
};

// Whether a sample of this shape is a picture: [c, h, w], [h, w, c] or [h, w].
bool GridOf(const Shape& shape, Grid* grid) {
  constexpr int64_t kLeast = 4;
  if (shape.size() == 3 && (shape[0] == 1 || shape[0] == 3))
    *grid = {shape[1], shape[2], shape[0], shape[2], 1, shape[1] * shape[2]};
  else if (shape.size() == 3 && (shape[2] == 1 || shape[2] == 3))
    *grid = {shape[0], shape[1], shape[2], shape[1] * shape[2], shape[2], 1};
  else if (shape.size() == 2)
    *grid = {shape[0], shape[1], 1, shape[1], 1, 0};
  return grid->height >= kLeast && grid->width >= kLeast;
}

// The means of equal parts of a picture that is larger than a report shows it.
data::Picture Shrunk(const TensorView& value, const Grid& grid, const SampleForm& form) {
  constexpr int64_t kSide = 72;
  const int64_t longer = std::max(grid.height, grid.width);
  const auto shrunk = [longer](int64_t n) { return longer <= kSide ? n : std::max<int64_t>(1, n * kSide / longer); };
  data::Picture picture{shrunk(grid.height), shrunk(grid.width), grid.channels, {}};
  const auto channels = static_cast<size_t>(grid.channels);
  std::vector<double> scale = form.scale, shift = form.shift;
  if (scale.size() == 1 && shift.size() == 1) {
    scale.resize(channels, scale[0]);
    shift.resize(channels, shift[0]);
  }
  if (scale.size() != channels || shift.size() != channels) {
    double low = std::numeric_limits<double>::infinity(), high = -low;
    for (int64_t i = 0; i < value.type.elements(); ++i) {
      const double v = At(value, i);
      if (!std::isfinite(v)) continue;
      low = std::min(low, v);
      high = std::max(high, v);
    }
    scale.assign(channels, high > low ? (high - low) / 255 : 1);
    shift.assign(channels, std::isfinite(low) ? low : 0);
  }
  for (int64_t y = 0; y < picture.height; ++y) {
    for (int64_t x = 0; x < picture.width; ++x) {
      for (size_t c = 0; c < channels; ++c) {
        const int64_t top = y * grid.height / picture.height, bottom = (y + 1) * grid.height / picture.height;
        const int64_t left = x * grid.width / picture.width, right = (x + 1) * grid.width / picture.width;
        double sum = 0;
        for (int64_t i = top; i < bottom; ++i) {
          for (int64_t j = left; j < right; ++j)
            sum += At(value, i * grid.row + j * grid.column + static_cast<int64_t>(c) * grid.channel);
        }
        const double level = (sum / static_cast<double>((bottom - top) * (right - left)) - shift[c]) / scale[c];
        picture.pixels.push_back(std::isnan(level) ? 0
                                                   : static_cast<uint8_t>(std::lround(std::clamp(level, 0.0, 255.0))));
      }
    }
  }
  return picture;
}

}  // namespace

void WorstSamples::Add(const data::Batch& batch, const SampleNumbers& numbers) {
  const TensorView data = batch.columns[0], labels = batch.columns.back();
  const TensorType type = RowType(data.type);
  const auto bytes = static_cast<size_t>(type.bytes());
  has_loss_ = numbers.loss.data != nullptr;
  for (int64_t row = 0; row < batch.valid; ++row) {
    Sample s;
    s.batch = batch.position.batch;
    s.row = row;
    if (batch.columns.size() > 1) s.label = LabelOf(labels, row);
    if (numbers.prediction.data != nullptr) {
      s.prediction = At(numbers.prediction, row);
      s.confidence = At(numbers.confidence, row);
    }
    s.badness = s.confidence;
    if (has_loss_) {
      s.loss = At(numbers.loss, row);
      s.badness = s.loss;
    } else if (s.prediction == s.label) {
      continue;
    }
    if (std::isnan(s.badness)) s.badness = std::numeric_limits<double>::infinity();
    if (kept_.size() == kMost && s.badness <= kept_.back().badness) continue;
    if (kept_.size() == kMost) kept_.pop_back();
    s.type = type;
    const char* const value = static_cast<const char*>(data.data) + static_cast<size_t>(row) * bytes;
    s.value.assign(value, value + bytes);
    const auto place = std::upper_bound(kept_.begin(), kept_.end(), s.badness,
                                        [](double badness, const Sample& other) { return badness > other.badness; });
    kept_.insert(place, std::move(s));
  }
}

void WorstSamples::Show(const Sample& sample, Json* json) const {
  const TensorView value{sample.type, const_cast<char*>(sample.value.data())};
  const int64_t n = sample.type.elements();
  const bool ids = sample.type.dtype == DType::kI32 || sample.type.dtype == DType::kI64;
  Grid grid;
  if (!ids && GridOf(sample.type.shape, &grid)) {
    const data::Picture picture = Shrunk(value, grid, form_);
    const auto png = data::EncodePng(picture);
    if (png.ok()) (*json)["picture"] = absl::Base64Escape(*png);
    return;
  }
  if (ids && !form_.characters.empty()) {
    std::string text;
    for (int64_t i = 0; i < std::min(n, kMostText); ++i) {
      const double id = At(value, i);
      const bool known = id >= 0 && id < static_cast<double>(form_.characters.size());
      absl::StrAppend(&text, known ? form_.characters[static_cast<size_t>(id)] : "?");
    }
    (*json)["text"] = text;
    return;
  }
  Json values = Json::array();
  for (int64_t i = 0; i < std::min(n, kMostValues); ++i) values.push_back(At(value, i));
  if (n > kMostValues) values.push_back("...");
  (*json)["values"] = std::move(values);
}

Json WorstSamples::Describe(const Sample& sample, const std::string& place, bool has_loss) const {
  // JSON has no infinity.
  const double most = std::numeric_limits<double>::max();
  Json json = {{kBadness, std::clamp(sample.badness, -most, most)}, {"sample", place}};
  if (has_loss) json["loss"] = sample.loss;
  if (sample.label >= 0) json["label"] = sample.label;
  if (sample.prediction >= 0) json["prediction"] = sample.prediction;
  if (sample.prediction >= 0) json["confidence"] = sample.confidence;
  Show(sample, &json);
  return json;
}

StatusOr<Json> WorstSamples::List(const data::Pipeline& pipeline, Groups* groups) const {
  data::Pipeline::Epoch epoch;
  if (!kept_.empty()) pipeline.MakeEpoch(0, &epoch);
  std::vector<Json> all;
  for (const Sample& s : kept_) all.push_back(Describe(s, pipeline.SampleAt(epoch, s.batch, s.row), has_loss_));
  if (groups != nullptr) {
    const std::string mine = DumpJson(Json(all));
    ASSIGN_OR_RETURN(const auto texts, GatherTexts(*groups, mine, "the worst samples"));
    all.clear();
    for (const std::string& text : texts) {
      ASSIGN_OR_RETURN(const Json list, ParseJson(text));
      all.insert(all.end(), list.begin(), list.end());
    }
    std::stable_sort(all.begin(), all.end(), [](const Json& a, const Json& b) {
      return a[kBadness].get<double>() > b[kBadness].get<double>();
    });
    if (all.size() > kMost) all.resize(kMost);
  }
  for (Json& sample : all) sample.erase(kBadness);
  return Json(all);
}

}  // namespace mslua
