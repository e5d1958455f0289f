#include "core/data/pipeline.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/rng.h"
#include "core/base/round_up.h"
#include "core/data/mix.h"

namespace mslua::data {
namespace {

constexpr int64_t kImmediateBytes = 32 << 10;  // copied in a microsecond or two
constexpr int64_t kMaxSequence = 100'000'000;  // more samples than this: taken for a sequence without end

constexpr char kAlike[] =
    ": all must be alike, but for columns that pad_info of padded_batch or bucket_batch_by_length names";

constexpr char kNoSampleByNumber[] =
    ": the source is an iterator, which gives no sample by its number: give GeneratorDataset a length and function(i)";

// Whether a sample is of that type, whose dimensions -1 are any.
bool Fits(const TensorType& sample, const TensorType& type) {
  return sample.dtype == type.dtype &&
         std::equal(sample.shape.begin(), sample.shape.end(), type.shape.begin(), type.shape.end(),
                    [](int64_t n, int64_t wanted) { return wanted < 0 || n == wanted; });
}

bool IsKnown(const TensorType& type) {
  return std::all_of(type.shape.begin(), type.shape.end(), [](int64_t d) { return d >= 0; });
}

// How many samples the operations use of a source with any number of them, where these are its first ones; at most
// `most`, which stands for all of them too.
int64_t SamplesUsed(const Dataset& dataset, int64_t most) {
  int64_t skipped = 0, unit = 1;  // samples; those of an element, which is a sample or a batch
  for (const Op& op : dataset.ops()) {
    if (const auto* take = std::get_if<TakeOp>(&op)) {
      const int64_t shards = std::min(std::max<int64_t>(dataset.sharding().num_shards, 1), most);
      return std::min(std::min(skipped + std::min(take->count, most) * unit, most) * shards, most);
    }
    if (const auto* skip = std::get_if<SkipOp>(&op)) {
      skipped = std::min(skipped + std::min(skip->count, most) * unit, most);
    } else if (const auto* batch = std::get_if<BatchOp>(&op); batch != nullptr && batch->buckets == nullptr) {
      unit = std::min(std::max<int64_t>(batch->size, 1), most);
    } else if (!std::holds_alternative<MapOp>(op) && !std::holds_alternative<ProjectOp>(op) &&
               !std::holds_alternative<RenameOp>(op) && !std::holds_alternative<MixOp>(op)) {
      return most;
    }
  }
  return most;
}

}  // namespace

StatusOr<std::shared_ptr<const Pipeline>> Pipeline::Open(const Dataset& dataset, const FeedOptions& options) {
  if (options.feeds < 1 || options.feed < 0 || options.feed >= options.feeds)
    return absl::InvalidArgumentError(absl::StrCat("feed ", options.feed, " of ", options.feeds, ": out of range"));
  auto pipeline = std::make_shared<Pipeline>();
  pipeline->options_ = options;
  pipeline->sharding_ = dataset.sharding();
  if (options.part_of != nullptr) RETURN_IF_ERROR(pipeline->CheckPart(dataset));
  RETURN_IF_ERROR(pipeline->OpenSource(dataset));
  const bool sequence = pipeline->generator_ != nullptr && !pipeline->generator_->random_access();
  const auto refuse = [](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(what, kNoSampleByNumber));
  };
  if (sequence && options.part_of != nullptr) return refuse(options.part_of);
  for (const Op& op : dataset.ops()) {
    if (sequence && std::holds_alternative<WeightedOp>(op)) return refuse(Name(op));
  }
  if (dataset.sharding().num_shards > 0 || sequence) pipeline->options_.feeds = 1, pipeline->options_.feed = 0;
  ASSIGN_OR_RETURN(pipeline->order_,
                   Order::Make(pipeline->source_size_, dataset.sharding(), dataset.ops(), pipeline->options_.feeds,
                               [&](int64_t sample) { return pipeline->Where(sample); }));
  pipeline->MakeShapes();
  const bool code = std::any_of(dataset.ops().begin(), dataset.ops().end(),
                                [](const Op& op) { return std::holds_alternative<CallOp>(op); }) ||
                    pipeline->runs_code();
  if (pipeline->foreign() || !code) {
    CodeCalls calls;
    RETURN_IF_ERROR(pipeline->CompileColumns(dataset.ops(), &calls));
  } else {
    RETURN_IF_ERROR(CodeCalls::RunWatched(
        [pipeline, ops = dataset.ops()](CodeCalls* calls) { return pipeline->CompileColumns(ops, calls); }));
  }
  int64_t bytes = 0;
  for (size_t k = 0; k < pipeline->chains_.size(); ++k) bytes += pipeline->column_bytes(k);
  const bool mapped = std::any_of(dataset.ops().begin(), dataset.ops().end(), [](const Op& op) {
    return std::holds_alternative<MapOp>(op) || std::holds_alternative<CallOp>(op);
  });
  const bool in_memory = pipeline->reader_ != nullptr && pipeline->reader_->in_memory();
  pipeline->immediate_ = in_memory && !mapped && bytes <= kImmediateBytes;
  return std::shared_ptr<const Pipeline>(std::move(pipeline));
}

// All of the shapes but for their columns.
void Pipeline::MakeShapes() {
  double batches = 0;
  for (const BatchShape& shape : order_.shapes()) batches += static_cast<double>(shape.batches);
  for (const BatchShape& shape : order_.shapes()) {
    shapes_.emplace_back();
    shapes_.back().rows = shape.rows;
    if (batches > 0) shapes_.back().share = static_cast<double>(shape.batches) / batches;
  }
}

int64_t Pipeline::column_bytes(size_t column) const {
  int64_t most = 0;
  for (const Shaped& shape : shapes_) most = std::max(most, shape.schema[column].type.bytes());
  return most;
}

Status Pipeline::CheckPart(const Dataset& dataset) const {
  const auto refuse = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(options_.part_of, ": ", what));
  };
  if (dataset.sharding().num_shards > 0)
    return refuse("a part is sharded: leave num_shards out, ranks share the samples of the result");
  for (const Op& op : dataset.ops()) {
    if (std::holds_alternative<BatchOp>(op)) return refuse("a part is batched already: batch the result");
    if (std::holds_alternative<ShuffleOp>(op) || std::holds_alternative<WeightedOp>(op))
      return refuse(absl::StrCat("a part is shuffled: call ", Name(op), " on the result"));
    const auto* map = std::get_if<MapOp>(&op);
    for (size_t i = 0; map != nullptr && i < map->transforms.size(); ++i) {
      if (IsRandom(map->transforms[i]))
        return refuse(absl::StrCat("the random transform ", Name(map->transforms[i]),
                                   " comes before, and would be the same in every epoch: call map with it after ",
                                   options_.part_of));
    }
  }
  return absl::OkStatus();
}

std::shared_ptr<const Pipeline> Pipeline::WithSeed(uint64_t seed) const {
  auto other = std::make_shared<Pipeline>(*this);
  other->options_.seed = seed;
  return other;
}

Status Pipeline::OpenSource(const Dataset& dataset) {
  if (dataset.source().generator() != nullptr) return OpenForeign(dataset);
  ASSIGN_OR_RETURN(reader_, data::OpenSource(dataset.source()));
  source_columns_ = reader_->columns();
  source_size_ = reader_->size();
  notices_ = reader_->notices();
  return absl::OkStatus();
}

Status Pipeline::OpenForeign(const Dataset& dataset) {
  const Source& source = dataset.source();
  ASSIGN_OR_RETURN(const SourceDef* def, FindSource(source.kind()));
  ASSIGN_OR_RETURN(const Fields fields, CheckFields(def->class_name, def->fields, source.fields()));
  const std::vector<std::string> column_names = fields.Strings("column_names");
  generator_ = source.generator();
  source_size_ = generator_->size();
  if (generator_->random_access() && source_size_ < 1) {
    return absl::InvalidArgumentError(absl::StrCat(generator_->name(), ": a source with random access has a length of ",
                                                   source_size_, ", expected at least 1"));
  }
  Generator::Row row;
  bool any = true;
  if (generator_->random_access()) {
    RETURN_IF_ERROR(AtSample(generator_->Get(0, &row), 0));
  } else {
    RETURN_IF_ERROR(generator_->Restart());
    ASSIGN_OR_RETURN(any, generator_->Next(&row));
  }
  if (!any) return absl::InvalidArgumentError(absl::StrCat(generator_->name(), ": the source gives no sample"));
  if (row.size() != column_names.size()) {
    return absl::InvalidArgumentError(absl::StrCat(generator_->name(), ": a sample has ", row.size(),
                                                   row.size() == 1 ? " column" : " columns", ", column_names has ",
                                                   column_names.size()));
  }
  for (size_t k = 0; k < row.size(); ++k) source_columns_.push_back({column_names[k], row[k].type});
  if (source_size_ < 0) {
    const int64_t used = SamplesUsed(dataset, kMaxSequence + 1);
    bool more = true;
    for (source_size_ = 1; source_size_ < used; ++source_size_) {
      ASSIGN_OR_RETURN(more, generator_->Next(&row));
      if (!more) break;
      generator_->Counted(source_size_ + 1);
    }
    if (source_size_ > kMaxSequence) {
      return absl::InvalidArgumentError(absl::StrCat(generator_->name(), ": no end after ", kMaxSequence,
                                                     " samples; give num_samples, or a length with "
                                                     "function(i)"));
    }
    cut_ = more;
  }
  return absl::OkStatus();
}

// A column on its way through the operations.
struct ColumnState {
  std::string name;
  size_t source = 0;
  std::vector<Transform> transforms;
  std::vector<std::string> places;  // of each transform: whose random numbers it has (ColumnChain::Make)
  absl::optional<Padding> padding = {};
  std::vector<size_t> image_of = {}, label_of = {};  // places in Pipeline::mixes_
};

namespace {

StatusOr<size_t> FindColumn(const std::vector<ColumnState>& columns, const Op& op, const std::string& name) {
  for (size_t k = 0; k < columns.size(); ++k) {
    if (columns[k].name == name) return k;
  }
  const auto write = [](std::string* out, const ColumnState& c) { out->append(c.name); };
  return absl::InvalidArgumentError(
      absl::StrCat(Name(op), ": no column '", name, "'; there are ", absl::StrJoin(columns, ", ", write)));
}

// `what`: the operation that has named the columns.
Status CheckNames(const std::vector<ColumnState>& columns, absl::string_view what) {
  for (size_t k = 0; k < columns.size(); ++k) {
    for (size_t j = 0; j < k; ++j) {
      if (columns[j].name == columns[k].name)
        return absl::InvalidArgumentError(absl::StrCat(what, ": two columns have the name '", columns[k].name, "'"));
    }
  }
  return absl::OkStatus();
}

Status ApplyMap(const MapOp& map, size_t stage, std::vector<ColumnState>* columns) {
  std::vector<size_t> found;
  for (const std::string& name : map.columns) {
    ASSIGN_OR_RETURN(const size_t k, FindColumn(*columns, map, name));
    if (std::find(found.begin(), found.end(), k) != found.end())
      return absl::InvalidArgumentError(absl::StrCat("map: input_columns: '", name, "' is named twice"));
    found.push_back(k);
  }
  if (found.empty()) found.push_back(0);
  if (!map.names.empty() && map.names.size() != found.size()) {
    return absl::InvalidArgumentError(absl::StrCat("map: output_columns: expected ", found.size(), ", one for each of ",
                                                   "input_columns, got ", map.names.size()));
  }
  const ColumnState first = (*columns)[found[0]];  // whose random numbers all of them have
  const std::string behind = stage > 0 ? absl::StrCat("/after ", stage) : "";
  const auto place = [&](const std::string& name, size_t t) {
    return absl::StrCat(name, "/", first.transforms.size() + t, behind);
  };
  // A column of another name now may have been transformed under this one: its random numbers are its own.
  std::string streams = first.name;
  const auto taken = [&] {
    for (size_t k = 0; k < columns->size(); ++k) {
      if (std::find(found.begin(), found.end(), k) != found.end()) continue;
      const std::vector<std::string>& places = (*columns)[k].places;
      for (size_t t = 0; t < map.transforms.size(); ++t) {
        if (std::find(places.begin(), places.end(), place(streams, t)) != places.end()) return true;
      }
    }
    return false;
  };
  for (int n = 2; taken(); ++n) streams = absl::StrCat(first.name, " ", n);
  for (size_t i = 0; i < found.size(); ++i) {
    ColumnState& c = (*columns)[found[i]];
    if (c.padding && !map.transforms.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("map: column '", c.name, "' is padded: call map before the batches are made"));
    }
    for (size_t t = 0; t < map.transforms.size(); ++t) {
      c.transforms.push_back(map.transforms[t]);
      c.places.push_back(place(streams, t));
    }
  }
  for (size_t i = 0; i < map.names.size(); ++i) (*columns)[found[i]].name = map.names[i];
  return CheckNames(*columns, "map");
}

// What the operation does to columns, behind `stage` calls of code.
Status ApplyToColumns(const Op& op, size_t stage, std::vector<ColumnState>* columns) {
  if (const auto* map = std::get_if<MapOp>(&op)) {
    return ApplyMap(*map, stage, columns);
  } else if (const auto* batch = std::get_if<BatchOp>(&op)) {
    for (const auto& [name, padding] : batch->padding) {
      ASSIGN_OR_RETURN(const size_t k, FindColumn(*columns, op, name));
      (*columns)[k].padding = padding;
    }
  } else if (const auto* project = std::get_if<ProjectOp>(&op)) {
    std::vector<ColumnState> chosen;
    for (size_t i = 0; i < project->columns.size(); ++i) {
      ASSIGN_OR_RETURN(const size_t k, FindColumn(*columns, op, project->columns[i]));
      chosen.push_back((*columns)[k]);
      if (!project->names.empty()) chosen.back().name = project->names[i];
    }
    *columns = std::move(chosen);
    return CheckNames(*columns, Name(op));
  } else if (const auto* rename = std::get_if<RenameOp>(&op)) {
    std::vector<size_t> found;
    for (const std::string& name : rename->from) {
      ASSIGN_OR_RETURN(const size_t k, FindColumn(*columns, op, name));
      found.push_back(k);
    }
    for (size_t i = 0; i < found.size(); ++i) (*columns)[found[i]].name = rename->to[i];
    return CheckNames(*columns, Name(op));
  }
  return absl::OkStatus();
}

// Whether images of two sizes would be changed in different places.
bool DependsOnSize(const Transform& transform) {
  if (const auto* vision = std::get_if<Vision>(&transform)) return FindVision(vision->kind)->places;
  return std::holds_alternative<RandomCrop>(transform) || std::holds_alternative<CenterCrop>(transform);
}

Status CheckSizes(const ChangedTogether& pair, const TensorType& first, const TensorType& second) {
  if (first.shape[0] == second.shape[0] && first.shape[1] == second.shape[1]) return absl::OkStatus();
  const auto side = [](const std::string& name, const TensorType& type) {
    return absl::StrCat("'", name, "' is ", type.shape[0], " x ", type.shape[1]);
  };
  return absl::InvalidArgumentError(absl::StrCat("map: ", pair.transform, " changes columns at the same places, and ",
                                                 side(pair.first.name, first), ", ", side(pair.second.name, second),
                                                 " pixels: map a Resize onto them before, or crop each by itself"));
}

Status CheckTogether(const std::vector<ChangedTogether>& together, const std::vector<RawColumn>& row) {
  for (const ChangedTogether& pair : together) {
    ASSIGN_OR_RETURN(const TensorType first, pair.first.before.TypeFor(row[pair.first.source]));
    ASSIGN_OR_RETURN(const TensorType second, pair.second.before.TypeFor(row[pair.second.source]));
    RETURN_IF_ERROR(CheckSizes(pair, first, second));
  }
  return absl::OkStatus();
}

// Copies a dense tensor into the front of each dimension of another one, which has `value` elsewhere.
void CopyPadded(const TensorType& from, const uint8_t* in, const TensorType& to, double value, uint8_t* out) {
  const int64_t size = SizeOf(to.dtype);
  alignas(8) char stored[8];
  StoreDouble(to.dtype, stored, 0, value);
  for (int64_t i = 0; i < to.elements(); ++i) std::memcpy(out + i * size, stored, static_cast<size_t>(size));
  const int64_t run = from.rank() > 0 ? from.shape.back() : 1;
  if (from.elements() == 0) return;
  for (int64_t r = 0; r < from.elements() / run; ++r) {
    int64_t rest = r, at = 0, stride = from.rank() > 0 ? to.shape.back() : 1;
    for (int64_t d = from.rank() - 2; d >= 0; --d) {
      at += rest % from.shape[d] * stride;
      rest /= from.shape[d];
      stride *= to.shape[d];
    }
    std::memcpy(out + at * size, in + r * run * size, static_cast<size_t>(run * size));
  }
}

}  // namespace

StatusOr<TensorType> Pipeline::Padded(const std::string& name, const TensorType& type, const Padding& padding) const {
  const bool buckets = order_.batch()->buckets != nullptr;
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(buckets ? "bucket_batch_by_length" : "padded_batch", ": column '",
                                                   name, "' is ", ToString(type), what));
  };
  if (padding.shape.size() != type.shape.size())
    return wrong(absl::StrCat(", its pad_info has ", padding.shape.size(), " dimensions"));
  for (size_t d = 0; d < padding.shape.size(); ++d) {
    if (padding.shape[d] < 1) return wrong(absl::StrCat(": expected sizes of at least 1, got ", padding.shape[d]));
    if (type.shape[d] > padding.shape[d])
      return wrong(absl::StrCat(", larger than its ", buckets ? "bucket" : "pad_info", ", which has ", padding.shape[d],
                                " in dimension ", d + 1));
  }
  alignas(8) char stored[8];
  StoreDouble(type.dtype, stored, 0, padding.value);
  const double held = LoadAsDouble(type.dtype, stored, 0);
  const bool fits = IsFloat(type.dtype) ? std::isfinite(held) || !std::isfinite(padding.value) : held == padding.value;
  if (!fits) return wrong(absl::StrCat(": expected a pad value of that type, got ", padding.value));
  return TensorType{type.dtype, Shape(padding.shape.begin(), padding.shape.end())};
}

void Pipeline::FreeShapes(const std::vector<ColumnState>& columns, bool last, std::vector<Column>* made) const {
  for (size_t k = 0; k < made->size(); ++k) {
    bool whole = false, images = false;
    for (const ColumnState& c : columns) {
      if (c.source != k) continue;
      whole |= !c.padding && last && options_.part_of == nullptr && !options_.ragged;
      images |= std::any_of(c.transforms.begin(), c.transforms.end(), ImageChain::IsVision);
    }
    Shape& shape = (*made)[k].type.shape;
    for (size_t d = 0; d < shape.size() && !whole; ++d) {
      if (!images || d < 2) shape[d] = -1;  // an image keeps its channels
    }
  }
}

Status Pipeline::AddStage(const CallOp& op, size_t place, std::vector<ColumnState>* columns, Scratch* first) {
  const bool made_by_code = !stages_.empty() || generator_ != nullptr || reader_->runs_code();
  if (made_by_code) FreeShapes(*columns, /*last=*/false, &LastColumns());
  Stage stage;
  stage.code = op.code;
  stage.stream = absl::StrCat("data/map/", place);
  std::vector<std::string> inputs = op.inputs;
  if (inputs.empty()) inputs.push_back((*columns)[0].name);
  for (const std::string& name : inputs) {
    ASSIGN_OR_RETURN(const size_t k, FindColumn(*columns, op, name));
    if ((*columns)[k].padding)
      return absl::InvalidArgumentError("map: a file of Lua gets samples, not batches: call it before batch");
    stage.inputs.push_back(k);
  }
  const std::vector<std::string>& outputs = op.outputs.empty() ? inputs : op.outputs;
  stage.outputs = outputs.size();
  for (ColumnState& c : *columns) {
    ASSIGN_OR_RETURN(ColumnChain chain, ColumnChain::Make(LastColumns()[c.source], c.transforms, c.places));
    stage.chains.push_back(std::move(chain));
    stage.from.push_back(c.source);
  }
  ASSIGN_OR_RETURN(stage.together, FindTogether(*columns));
  // The results take the place of the first column that the code gets; with equal numbers, of each.
  std::vector<ColumnState> next;
  const auto keep = [&](int from, std::string name) {
    stage.columns.push_back(from);
    next.push_back({std::move(name), next.size(), {}, {}, {}});
  };
  for (size_t k = 0; k < columns->size(); ++k) {
    const auto input = std::find(stage.inputs.begin(), stage.inputs.end(), k);
    if (input == stage.inputs.end()) {
      keep(static_cast<int>(k), (*columns)[k].name);
    } else if (outputs.size() == inputs.size()) {
      const size_t i = static_cast<size_t>(input - stage.inputs.begin());
      keep(-1 - static_cast<int>(i), outputs[i]);
    } else if (k == stage.inputs[0]) {
      for (size_t i = 0; i < outputs.size(); ++i) keep(-1 - static_cast<int>(i), outputs[i]);
    }
  }
  *columns = std::move(next);
  RETURN_IF_ERROR(CheckNames(*columns, Name(op)));
  stages_.push_back(std::move(stage));
  // The types of what the code gives are those of the first sample.
  const size_t s = stages_.size() - 1;
  Epoch epoch;
  MakeEpoch(0, &epoch);
  RETURN_IF_ERROR(RunStage(s, epoch.stages[s], 0, 0, first));
  for (size_t k = 0; k < columns->size(); ++k) stages_[s].made.push_back({(*columns)[k].name, first->row[k].type});
  for (size_t k = 0; k < columns->size(); ++k) {
    const int from = stages_[s].columns[k];  // a column that stays keeps its dimensions that differ
    if (from >= 0) stages_[s].made[k].type = stages_[s].chains[static_cast<size_t>(from)].out();
  }
  return absl::OkStatus();
}

StatusOr<std::vector<ChangedTogether>> Pipeline::FindTogether(const std::vector<ColumnState>& columns) {
  std::vector<ChangedTogether> together;
  const auto side = [&](const ColumnState& c, size_t t) -> StatusOr<ChangedTogether::Side> {
    const auto end = static_cast<std::ptrdiff_t>(t);
    ASSIGN_OR_RETURN(ColumnChain before,
                     ColumnChain::Make(LastColumns()[c.source], {c.transforms.begin(), c.transforms.begin() + end},
                                       {c.places.begin(), c.places.begin() + end}));
    return ChangedTogether::Side{c.name, c.source, std::move(before)};
  };
  for (size_t k = 0; k < columns.size(); ++k) {
    const ColumnState& c = columns[k];
    for (size_t t = 0; t < c.transforms.size(); ++t) {
      if (!DependsOnSize(c.transforms[t])) continue;
      // With the column before it alone: equality is transitive.
      for (size_t j = k; j-- > 0;) {
        const auto& places = columns[j].places;
        const auto same = std::find(places.begin(), places.end(), c.places[t]);
        if (same == places.end()) continue;
        ASSIGN_OR_RETURN(ChangedTogether::Side first, side(columns[j], static_cast<size_t>(same - places.begin())));
        ASSIGN_OR_RETURN(ChangedTogether::Side second, side(c, t));
        ChangedTogether pair{std::move(first), std::move(second), Name(c.transforms[t])};
        const TensorType &a = pair.first.before.out(), &b = pair.second.before.out();
        if (!IsKnown(a) || !IsKnown(b))
          together.push_back(std::move(pair));
        else
          RETURN_IF_ERROR(CheckSizes(pair, a, b));
        break;
      }
    }
  }
  return together;
}

Status Pipeline::AddMix(const MixOp& op, size_t place, std::vector<ColumnState>* columns) {
  const char* const name = op.cut ? "CutMixBatch" : "MixUpBatch";
  if (!batched()) return absl::InvalidArgumentError(absl::StrCat(name, ": call batch first: it mixes rows of a batch"));
  Mix mix;
  mix.op = op;
  mix.stream = absl::StrCat("data/", op.cut ? "cutmix/" : "mixup/", place);
  ASSIGN_OR_RETURN(const size_t image, FindColumn(*columns, op, op.image));
  ASSIGN_OR_RETURN(const size_t label, FindColumn(*columns, op, op.label));
  (*columns)[image].image_of.push_back(mixes_.size());
  (*columns)[label].label_of.push_back(mixes_.size());
  mixes_.push_back(std::move(mix));
  return absl::OkStatus();
}

Status Pipeline::CheckMixes() const {
  for (const Mix& mix : mixes_) {
    const char* const name = mix.op.cut ? "CutMixBatch" : "MixUpBatch";
    std::vector<TensorType> images;
    for (const size_t k : mix.images) images.push_back(shapes_[0].samples[k]);
    if (images.empty()) images.push_back(mix.dropped[0]);
    for (const TensorType& image : images) {
      if (image.dtype != DType::kF32 || (mix.op.cut && image.rank() != 3))
        return absl::InvalidArgumentError(absl::StrCat(name, ": column '", mix.op.image, "': expected ",
                                                       mix.op.cut ? "images of float32" : "float32", ", got ",
                                                       ToString(image), ": Rescale or TypeCast makes it so"));
    }
    for (const size_t k : mix.labels) {
      const TensorType& label = shapes_[0].samples[k];
      if (label.dtype != DType::kF32 || label.rank() != 1)
        return absl::InvalidArgumentError(
            absl::StrCat(name, ": column '", mix.op.label, "': expected a float32 vector of the classes, got ",
                         ToString(label), ": map {transforms.OneHot(n), transforms.TypeCast(ms.float32)} makes it so"));
    }
  }
  return absl::OkStatus();
}

Status Pipeline::CompileColumns(const std::vector<Op>& ops, CodeCalls* calls) {
  if (source_columns_.empty()) return absl::InvalidArgumentError("the dataset has no column");
  for (size_t k = 0; k < source_columns_.size(); ++k) {
    for (size_t j = 0; j < k; ++j) {
      if (source_columns_[j].name == source_columns_[k].name)
        return absl::InvalidArgumentError(
            absl::StrCat("column_names: two columns have the name '", source_columns_[k].name, "'"));
    }
  }
  std::vector<ColumnState> columns;
  for (size_t k = 0; k < source_columns_.size(); ++k) columns.push_back({source_columns_[k].name, k, {}, {}, {}});
  const auto with_image = [&columns](size_t mix) {
    return std::find_if(columns.begin(), columns.end(), [mix](const ColumnState& c) {
      return std::find(c.image_of.begin(), c.image_of.end(), mix) != c.image_of.end();
    });
  };
  std::vector<ColumnState> images;  // of each mix
  Scratch first(calls);
  bool read = false;
  const auto read_first = [&] {
    if (read) return absl::OkStatus();
    read = true;
    first.row.resize(source_columns_.size());
    Sequence unused;
    return ReadSample(0, &first, &unused);
  };
  for (size_t i = 0; i < ops.size(); ++i) {
    if (const auto* call = std::get_if<CallOp>(&ops[i])) {
      if (std::any_of(ops.begin(), ops.begin() + static_cast<std::ptrdiff_t>(i),
                      [](const Op& op) { return std::holds_alternative<BatchOp>(op); }))
        return absl::InvalidArgumentError("map: a file of Lua gets samples, not batches: call it before batch");
      if (generator_ != nullptr && !generator_->random_access())
        return absl::InvalidArgumentError(absl::StrCat("map: ", call->code->name(), kNoSampleByNumber));
      RETURN_IF_ERROR(read_first());
      RETURN_IF_ERROR(AddStage(*call, i, &columns, &first));
    } else if (const auto* mix = std::get_if<MixOp>(&ops[i])) {
      RETURN_IF_ERROR(AddMix(*mix, i, &columns));
      images.push_back(*with_image(mixes_.size() - 1));
    } else {
      RETURN_IF_ERROR(ApplyToColumns(ops[i], stages_.size(), &columns));
    }
  }
  if (generator_ != nullptr || !stages_.empty() || reader_->runs_code()) {
    std::vector<ColumnState> wanted = columns;
    for (size_t m = 0; m < images.size(); ++m) {
      if (with_image(m) == columns.end()) wanted.push_back(images[m]);
    }
    FreeShapes(wanted, /*last=*/true, &LastColumns());
  }
  const auto chain_of = [&](const ColumnState& c) {
    return ColumnChain::Make(LastColumns()[c.source], c.transforms, c.places);
  };
  // Before padding.
  const auto type_of = [&](const ColumnState& c, const ColumnChain& chain) -> StatusOr<TensorType> {
    if (c.padding || IsKnown(chain.out())) return chain.out();
    RETURN_IF_ERROR(read_first());
    StatusOr<TensorType> own = chain.TypeFor(first.row[c.source]);
    return own.ok() ? own : Annotate(own.status(), Where(0));
  };
  for (const ColumnState& c : columns) {
    ASSIGN_OR_RETURN(ColumnChain chain, chain_of(c));
    ASSIGN_OR_RETURN(const TensorType type, type_of(c, chain));
    for (const size_t m : c.image_of) mixes_[m].images.push_back(chains_.size());
    for (const size_t m : c.label_of) mixes_[m].labels.push_back(chains_.size());
    row_types_.push_back(chain.out());
    names_.push_back(c.name);
    chains_.push_back(std::move(chain));
    from_.push_back(c.source);
    for (size_t s = 0; s < shapes_.size(); ++s) RETURN_IF_ERROR(AddColumn(c.name, type, c.padding, s));
  }
  for (size_t m = 0; m < mixes_.size(); ++m) {
    if (!mixes_[m].images.empty()) continue;
    const ColumnState& image = images[m];
    ASSIGN_OR_RETURN(const ColumnChain chain, chain_of(image));
    ASSIGN_OR_RETURN(const TensorType type, type_of(image, chain));
    mixes_[m].planar = chain.planar();
    for (size_t s = 0; s < shapes_.size(); ++s) {
      absl::optional<Padding> padding = image.padding;
      ASSIGN_OR_RETURN(TensorType sample, SampleType(image.name, type, &padding, s));
      mixes_[m].dropped.push_back(std::move(sample));
    }
  }
  ASSIGN_OR_RETURN(together_, FindTogether(columns));
  FindDirect();
  return CheckMixes();
}

void Pipeline::FindDirect() {
  if (reader_ == nullptr || !stages_.empty()) return;
  const auto padded = [&](size_t k) {
    return std::any_of(shapes_.begin(), shapes_.end(), [k](const Shaped& s) { return s.paddings[k].has_value(); });
  };
  direct_.assign(source_columns_.size(), -1);
  for (size_t k = 0; k < chains_.size(); ++k) {
    const bool only = std::count(from_.begin(), from_.end(), from_[k]) == 1;
    if (only && chains_[k].plain() && !padded(k) && IsKnown(source_columns_[from_[k]].type))
      direct_[from_[k]] = static_cast<int>(k);
  }
}

StatusOr<TensorType> Pipeline::SampleType(const std::string& name, const TensorType& type,
                                          absl::optional<Padding>* padding, size_t s) const {
  if (!*padding) return type;
  for (int64_t& size : (*padding)->shape) {
    if (size == -1 && order_.batch()->buckets != nullptr) size = order_.shapes()[s].length;
  }
  return Padded(name, type, **padding);
}

Status Pipeline::AddColumn(const std::string& name, TensorType type, absl::optional<Padding> padding, size_t s) {
  Shaped& shape = shapes_[s];
  ASSIGN_OR_RETURN(type, SampleType(name, type, &padding, s));
  shape.paddings.push_back(std::move(padding));
  shape.samples.push_back(type);
  if (batched()) type.shape.insert(type.shape.begin(), shape.rows);
  if (type.rank() > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("column '", name, "' becomes ", ToString(type), ": more than ", kMaxRank, " dimensions"));
  }
  shape.schema.push_back({name, std::move(type)});
  return absl::OkStatus();
}

namespace {

void StreamsOf(const std::vector<ColumnChain>& chains, int64_t epoch, std::vector<std::vector<uint64_t>>* streams) {
  streams->resize(chains.size());
  for (size_t k = 0; k < chains.size(); ++k) {
    const auto& names = chains[k].random_streams();
    (*streams)[k].resize(names.size());
    for (size_t i = 0; i < names.size(); ++i) (*streams)[k][i] = StreamOf(names[i], static_cast<uint64_t>(epoch));
  }
}

}  // namespace

void Pipeline::MakeEpoch(int64_t number, Epoch* epoch) const {
  epoch->number = number;
  order_.Evaluate(options_.seed, number, &epoch->order);
  StreamsOf(chains_, number, &epoch->streams);
  epoch->stages.resize(stages_.size());
  for (size_t s = 0; s < stages_.size(); ++s) {
    StreamsOf(stages_[s].chains, number, &epoch->stages[s].columns);
    epoch->stages[s].code = StreamOf(stages_[s].stream, static_cast<uint64_t>(number));
  }
  epoch->mixes.resize(mixes_.size());
  for (size_t m = 0; m < mixes_.size(); ++m)
    epoch->mixes[m] = StreamOf(mixes_[m].stream, static_cast<uint64_t>(number));
}

EpochOrder::Group Pipeline::RowsOf(const Epoch& epoch, int64_t batch) const {
  if (!batched()) return {static_cast<uint32_t>(batch * options_.feeds + options_.feed), 1};
  const EpochOrder::Group group = epoch.order.groups[batch];
  const int64_t rows = shapes_[group.shape].rows;  // of the feed
  const int64_t offset = options_.feed * rows;
  const int64_t count = std::min(std::max<int64_t>(group.count - offset, 0), rows);
  return {static_cast<uint32_t>(group.begin + offset), static_cast<uint32_t>(count)};
}

StatusOr<int64_t> Pipeline::Fill(const Epoch& epoch, int64_t batch, Scratch* scratch, Sequence* sequence,
                                 const std::vector<void*>& columns) const {
  if (generator_ != nullptr && !generator_->random_access() &&
      (sequence->epoch != epoch.number || sequence->batch != batch)) {
    StartSequence(epoch, batch, sequence);
  }
  sequence->batch = -1;  // an error on the way leaves it ready for nothing
  const EpochOrder::Group rows = RowsOf(epoch, batch);
  const Shaped& shape = shapes_[static_cast<size_t>(ShapeOf(epoch, batch))];
  // Small samples are there sooner than one can ask for them.
  constexpr int64_t kLargeSample = 4 << 10;
  const auto large = [](const TensorType& sample) { return sample.bytes() >= kLargeSample; };
  if (std::any_of(shape.samples.begin(), shape.samples.end(), large)) ReadAhead(epoch, batch + 1);
  std::vector<uint8_t*>& places = scratch->places;
  places.resize(columns.size());
  for (int64_t r = 0; r < rows.count; ++r) {
    for (size_t k = 0; k < columns.size(); ++k) {
      places[k] = static_cast<uint8_t*>(columns[k]) + r * shape.samples[k].bytes();
    }
    RETURN_IF_ERROR(FillRow(epoch, rows.begin + r, shape, scratch, sequence, places));
  }
  if (!mixes_.empty() && rows.count > 0) {
    RETURN_IF_ERROR(MixRows(epoch, batch, rows.count, scratch, sequence, columns));
  }
  for (size_t k = 0; k < chains_.size(); ++k) {
    const int64_t bytes = shape.samples[k].bytes();
    std::memset(static_cast<uint8_t*>(columns[k]) + rows.count * bytes, 0, (shape.rows - rows.count) * bytes);
  }
  RETURN_IF_ERROR(CheckEnd(scratch, sequence));
  sequence->batch = batch + 1;
  return rows.count;
}

void Pipeline::ReadAhead(const Epoch& epoch, int64_t batch) const {
  if (reader_ == nullptr || batch >= size()) return;
  const EpochOrder::Group rows = RowsOf(epoch, batch);
  for (uint32_t r = 0; r < rows.count; ++r) reader_->ReadAhead(epoch.order.samples[rows.begin + r] % source_size_);
}

Status Pipeline::FillRow(const Epoch& epoch, int64_t at, const Shaped& shape, Scratch* scratch, Sequence* sequence,
                         const std::vector<uint8_t*>& columns) const {
  const int64_t id = epoch.order.samples[at];
  scratch->row.resize(source_columns_.size());
  std::vector<void*>& places = scratch->buffers.places;
  places.resize(direct_.size());
  for (size_t c = 0; c < direct_.size(); ++c) places[c] = direct_[c] < 0 ? nullptr : columns[direct_[c]];
  const Status read = ReadSample(id, scratch, sequence);
  places.clear();
  RETURN_IF_ERROR(read);
  // The place in the global sequence, not the sample's own number: a repeated sample gets new random numbers.
  const int64_t place = sharding_.num_shards > 0 ? at * sharding_.num_shards + sharding_.shard_id : at;
  RETURN_IF_ERROR(RunStages(epoch, place, id, scratch));
  if (const Status sizes = CheckTogether(together_, scratch->row); !sizes.ok()) return Annotate(sizes, Where(id));
  for (size_t k = 0; k < chains_.size(); ++k) {
    const Draws draws{options_.seed, epoch.streams[k], static_cast<uint64_t>(place)};
    const Status status = FillColumn(k, draws, shape, scratch, columns[k]);
    if (!status.ok()) return Annotate(status, Where(id));
  }
  return absl::OkStatus();
}

Status Pipeline::RunStages(const Epoch& epoch, int64_t place, int64_t id, Scratch* scratch) const {
  for (size_t s = 0; s < stages_.size(); ++s) {
    RETURN_IF_ERROR(RunStage(s, epoch.stages[s], place, id, scratch));
  }
  return absl::OkStatus();
}

Status Pipeline::Transformed(const ColumnChain& chain, const RawColumn& raw, const Draws& draws, ImageScratch* image,
                             std::vector<uint8_t>* memory, RawColumn* out) {
  if (chain.plain() && !raw.planar) {
    *out = raw;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const TensorType type, chain.TypeFor(raw));
  memory->resize(static_cast<size_t>(type.bytes()));
  RETURN_IF_ERROR(chain.Apply(raw, draws, image, type, memory->data()));
  *out = RawColumn{memory->data(), type};
  return absl::OkStatus();
}

Status Pipeline::RunStage(size_t s, const Epoch::StageStreams& streams, int64_t place, int64_t id,
                          Scratch* scratch) const {
  const Stage& stage = stages_[s];
  if (scratch->stages.size() <= s) scratch->stages.resize(stages_.size() + 1);
  Scratch::StageMemory& memory = scratch->stages[s];
  memory.columns.resize(stage.chains.size());
  memory.row.resize(stage.chains.size());
  if (const Status sizes = CheckTogether(stage.together, scratch->row); !sizes.ok()) return Annotate(sizes, Where(id));
  for (size_t k = 0; k < stage.chains.size(); ++k) {
    const Draws draws{options_.seed, streams.columns[k], static_cast<uint64_t>(place)};
    const Status status = Transformed(stage.chains[k], scratch->row[stage.from[k]], draws, &scratch->image,
                                      &memory.columns[k], &memory.row[k]);
    if (!status.ok()) return Annotate(status, Where(id));
  }
  CodeArguments arguments;
  arguments.key = UniformIntAt(options_.seed, streams.code, static_cast<uint64_t>(place), uint64_t{1} << 53);
  arguments.frozen = options_.part_of != nullptr;
  for (const size_t k : stage.inputs) {
    arguments.columns.push_back({memory.row[k].type, const_cast<void*>(memory.row[k].data)});
  }
  const std::string where = Where(id);
  RETURN_IF_ERROR(scratch->buffers.code->Call(stage.code, std::move(arguments), where, &memory.results));
  if (memory.results.size() != stage.outputs)
    return absl::InvalidArgumentError(absl::StrCat(stage.code->name(), ": the function should give ", stage.outputs,
                                                   stage.outputs == 1 ? " value" : " values", ", got ",
                                                   memory.results.size(), " (", where, ")"));
  scratch->row.resize(stage.columns.size());
  for (size_t k = 0; k < stage.columns.size(); ++k) {
    const int from = stage.columns[k];
    if (from >= 0) {
      scratch->row[k] = memory.row[static_cast<size_t>(from)];
      continue;
    }
    const TensorView& result = memory.results[static_cast<size_t>(-1 - from)];
    if (!stage.made.empty() && !Fits(result.type, stage.made[k].type))
      return absl::InvalidArgumentError(absl::StrCat(stage.code->name(), ": '", stage.made[k].name, "' is ",
                                                     ToString(result.type), ", of the first sample ",
                                                     ToString(stage.made[k].type), kAlike, " (", where, ")"));
    scratch->row[k] = RawColumn{result.data, result.type};
  }
  return absl::OkStatus();
}

Status Pipeline::ReadRow(const Epoch& epoch, int64_t i, Scratch* scratch, absl::Span<RawColumn> row) const {
  const int64_t id = epoch.order.samples[i];
  scratch->row.resize(source_columns_.size());
  Sequence unused;
  RETURN_IF_ERROR(ReadSample(id, scratch, &unused));
  RETURN_IF_ERROR(RunStages(epoch, i, id, scratch));
  if (const Status sizes = CheckTogether(together_, scratch->row); !sizes.ok()) return Annotate(sizes, Where(id));
  if (scratch->stages.size() <= stages_.size()) scratch->stages.resize(stages_.size() + 1);
  Scratch::StageMemory& memory = scratch->stages[stages_.size()];
  memory.columns.resize(chains_.size());
  for (size_t k = 0; k < chains_.size(); ++k) {
    const Draws draws{options_.seed, epoch.streams[k], static_cast<uint64_t>(i)};
    const Status status =
        Transformed(chains_[k], scratch->row[from_[k]], draws, &scratch->image, &memory.columns[k], &row[k]);
    if (!status.ok()) return Annotate(status, Where(id));
  }
  return absl::OkStatus();
}

Status Pipeline::MixRows(const Epoch& epoch, int64_t batch, int64_t rows, Scratch* scratch, Sequence* sequence,
                         const std::vector<void*>& columns) const {
  const EpochOrder::Group group = epoch.order.groups[batch];
  const Shaped& shape = shapes_[group.shape];
  const int64_t begin = RowsOf(epoch, batch).begin, first = begin - group.begin;
  // The row before the first: the last one here where these are all rows of the global batch; else it is made.
  int64_t bytes = 0;
  std::vector<int64_t> offsets;
  for (const TensorType& type : shape.samples) {
    offsets.push_back(bytes);
    bytes += RoundUp(type.bytes(), 64);
  }
  scratch->before.resize(static_cast<size_t>(bytes));
  std::vector<uint8_t*> before;
  for (const int64_t offset : offsets) before.push_back(scratch->before.data() + offset);
  if (rows == group.count) {
    for (size_t k = 0; k < before.size(); ++k) {
      const int64_t size = shape.samples[k].bytes();
      std::memcpy(before[k], static_cast<uint8_t*>(columns[k]) + (rows - 1) * size, static_cast<size_t>(size));
    }
  } else {
    const int64_t last = group.begin + (first + group.count - 1) % group.count;
    RETURN_IF_ERROR(FillRow(epoch, last, shape, scratch, sequence, before));
  }
  // One mix at most: of two, the second takes the batches that the first leaves alone.
  for (size_t m = 0; m < mixes_.size(); ++m) {
    const Mix& mix = mixes_[m];
    const auto draw = [&](const TensorType& image, bool planar) {
      return DrawMix(mix.op, image, planar, options_.seed, epoch.mixes[m], static_cast<uint64_t>(batch));
    };
    const MixedPart part = mix.images.empty() ? draw(mix.dropped[group.shape], mix.planar)
                                              : draw(shape.samples[mix.images[0]], chains_[mix.images[0]].planar());
    if (!part.mixes) continue;
    for (const size_t k : mix.images) {
      MixRowsOf(draw(shape.samples[k], chains_[k].planar()), shape.samples[k], rows,
                reinterpret_cast<const float*>(before[k]), static_cast<float*>(columns[k]));
    }
    for (const size_t k : mix.labels) {
      BlendRows(part.kept, shape.samples[k].elements(), rows, reinterpret_cast<const float*>(before[k]),
                static_cast<float*>(columns[k]));
    }
    break;
  }
  return absl::OkStatus();
}

Status Pipeline::FillColumn(size_t k, const Draws& draws, const Shaped& shape, Scratch* scratch, uint8_t* out) const {
  const RawColumn& raw = scratch->row[from_[k]];
  const absl::optional<Padding>& padding = shape.paddings[k];
  if (!padding) return chains_[k].Apply(raw, draws, &scratch->image, shape.samples[k], out);
  ASSIGN_OR_RETURN(const TensorType type, chains_[k].TypeFor(raw));
  RETURN_IF_ERROR(Padded(names_[k], type, *padding).status());
  scratch->unpadded.resize(static_cast<size_t>(type.bytes()));
  RETURN_IF_ERROR(chains_[k].Apply(raw, draws, &scratch->image, type, scratch->unpadded.data()));
  CopyPadded(type, scratch->unpadded.data(), shape.samples[k], padding->value, out);
  return absl::OkStatus();
}

Status Pipeline::ReadSample(int64_t id, Scratch* scratch, Sequence* sequence) const {
  if (reader_ != nullptr) {
    return reader_->Read(id % source_size_, &scratch->buffers, absl::MakeSpan(scratch->row));
  }
  if (generator_->random_access()) {
    RETURN_IF_ERROR(AtSample(generator_->Get(id % source_size_, &scratch->foreign), id));
    RETURN_IF_ERROR(CheckForeign(scratch->foreign, id));
  } else if (const auto it = sequence->held.find(id); it != sequence->held.end()) {
    const Sequence::Place& place = sequence->places[it->second];
    const uint8_t* data = place.bytes.data();
    for (size_t k = 0; k < source_columns_.size(); ++k) {
      scratch->row[k] = RawColumn{data, place.types[k]};
      data += place.types[k].bytes();
    }
    sequence->free.push_back(it->second);  // overwritten by the next call at the earliest
    sequence->held.erase(it);
    return absl::OkStatus();
  } else {
    while (true) {
      const int64_t came = sequence->next;
      RETURN_IF_ERROR(PullSequence(scratch, sequence));
      if (came == id) break;
      if (!sequence->wanted[came]) continue;
      if (sequence->free.empty()) {
        sequence->free.push_back(sequence->places.size());
        sequence->places.emplace_back();
      }
      const size_t place = sequence->free.back();
      sequence->free.pop_back();
      Sequence::Place& kept = sequence->places[place];
      kept.bytes.clear();
      kept.types.clear();
      for (const TensorView& column : scratch->foreign) {
        const auto* data = static_cast<const uint8_t*>(column.data);
        kept.bytes.insert(kept.bytes.end(), data, data + column.type.bytes());
        kept.types.push_back(column.type);
      }
      sequence->held[came] = place;
    }
  }
  for (size_t k = 0; k < source_columns_.size(); ++k) {
    scratch->row[k] = RawColumn{scratch->foreign[k].data, scratch->foreign[k].type};
  }
  return absl::OkStatus();
}

void Pipeline::StartSequence(const Epoch& epoch, int64_t batch, Sequence* sequence) const {
  sequence->epoch = epoch.number;
  sequence->next = 0;
  sequence->passed = false;
  for (const auto& [id, place] : sequence->held) sequence->free.push_back(place);
  sequence->held.clear();
  const auto& samples = epoch.order.samples;
  sequence->wanted.assign(samples.empty() ? 0 : *std::max_element(samples.begin(), samples.end()) + 1, false);
  for (int64_t g = batch; g < size(); ++g) {
    const EpochOrder::Group rows = RowsOf(epoch, g);
    for (uint32_t r = 0; r < rows.count; ++r) sequence->wanted[samples[rows.begin + r]] = true;
  }
}

Status Pipeline::PullSequence(Scratch* scratch, Sequence* sequence) const {
  RETURN_IF_ERROR(CheckEnd(scratch, sequence));
  if (sequence->next % source_size_ == 0) {
    RETURN_IF_ERROR(generator_->Restart());
    sequence->start = generator_->starts();
  } else if (sequence->start != generator_->starts()) {
    return absl::FailedPreconditionError(absl::StrCat(
        generator_->name(), ": its iterator was started again, by another loop over the same dataset, after ",
        sequence->next % source_size_, " of ", source_size_,
        " samples: make a dataset for each loop, or give a length and function(i), which several loops can read"));
  }
  const StatusOr<bool> more = generator_->Next(&scratch->foreign);
  RETURN_IF_ERROR(AtSample(more.status(), sequence->next));
  if (!*more) {
    return absl::InvalidArgumentError(absl::StrCat(generator_->name(), ": the source ended after ",
                                                   sequence->next % source_size_, " samples, expected ", source_size_));
  }
  sequence->passed = (sequence->next + 1) % source_size_ == 0;
  return CheckForeign(scratch->foreign, sequence->next++);
}

Status Pipeline::CheckEnd(Scratch* scratch, Sequence* sequence) const {
  if (!std::exchange(sequence->passed, false) || cut_ || sequence->start != generator_->starts())
    return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool more, generator_->Next(&scratch->foreign));
  if (!more) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(generator_->name(), ": the source gives more than the ", source_size_,
                                                 " samples that it gave when it was counted: give as many in each "
                                                 "epoch, or say with num_samples how many are used"));
}

Status Pipeline::AtSample(const Status& status, int64_t id) const {
  if (status.ok()) return status;
  Status at(status.code(), absl::StrCat(status.message(), " (", Where(id), ")"));
  status.ForEachPayload([&](absl::string_view name, const absl::Cord& value) { at.SetPayload(name, value); });
  return at;
}

Status Pipeline::CheckForeign(const Generator::Row& row, int64_t id) const {
  bool same = row.size() == source_columns_.size();
  for (size_t k = 0; same && k < row.size(); ++k) same = Fits(row[k].type, source_columns_[k].type);
  if (same) return absl::OkStatus();
  const auto write = [](std::string* out, const TensorType& type) { out->append(ToString(type)); };
  std::vector<TensorType> got, want;
  for (const auto& column : row) got.push_back(column.type);
  for (const auto& column : source_columns_) want.push_back(column.type);
  return absl::InvalidArgumentError(absl::StrCat(generator_->name(), ": ", Where(id), " is (",
                                                 absl::StrJoin(got, ", ", write), "), sample 1 was (",
                                                 absl::StrJoin(want, ", ", write), ")", kAlike));
}

std::string Pipeline::SampleAt(const Epoch& epoch, int64_t batch, int64_t row) const {
  return Where(epoch.order.samples[RowsOf(epoch, batch).begin + row]);
}

std::string Pipeline::Where(int64_t id) const {
  const int64_t index = id % source_size_;
  return reader_ != nullptr ? reader_->Where(index) : absl::StrCat("sample ", index + 1);
}

}  // namespace mslua::data
