#include "core/data/pipeline.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/rng.h"

namespace mslua::data {
namespace {

constexpr int64_t kImmediateBytes = 32 << 10;  // copied in a microsecond or two
constexpr int64_t kMaxSequence = 100'000'000;  // more samples than this: taken for a sequence without end

// Whether a sample is of that type, whose dimensions -1 are any.
bool Fits(const TensorType& sample, const TensorType& type) {
  return sample.dtype == type.dtype &&
         std::equal(sample.shape.begin(), sample.shape.end(), type.shape.begin(), type.shape.end(),
                    [](int64_t n, int64_t wanted) { return wanted < 0 || n == wanted; });
}

bool IsKnown(const TensorType& type) {
  return std::all_of(type.shape.begin(), type.shape.end(), [](int64_t d) { return d >= 0; });
}

}  // namespace

StatusOr<std::shared_ptr<const Pipeline>> Pipeline::Open(const Dataset& dataset, const FeedOptions& options) {
  if (options.feeds < 1 || options.feed < 0 || options.feed >= options.feeds || options.slices < 1 ||
      options.slice < 0 || options.slice >= options.slices) {
    return absl::InvalidArgumentError(absl::StrCat("feed ", options.feed, " of ", options.feeds, ", slice ",
                                                   options.slice, " of ", options.slices, ": out of range"));
  }
  auto pipeline = std::make_shared<Pipeline>();
  pipeline->options_ = options;
  pipeline->sharding_ = dataset.sharding();
  RETURN_IF_ERROR(pipeline->OpenSource(dataset.source()));
  const bool sequence = pipeline->generator_ != nullptr && !pipeline->generator_->random_access();
  if (dataset.sharding().num_shards > 0 || sequence) pipeline->options_.feeds = 1, pipeline->options_.feed = 0;
  ASSIGN_OR_RETURN(pipeline->order_,
                   Order::Make(pipeline->source_size_, dataset.sharding(), dataset.ops(), pipeline->options_.feeds));
  const int64_t b = pipeline->batched() ? pipeline->order_.batch()->size : 1;
  if (b % options.slices != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", b, " does not divide into ", options.slices, " slices"));
  }
  pipeline->rows_ = b / options.slices;
  RETURN_IF_ERROR(pipeline->CompileColumns(dataset.ops()));
  int64_t bytes = 0;
  for (const Column& column : pipeline->schema_) bytes += column.type.bytes();
  const bool mapped = std::any_of(dataset.ops().begin(), dataset.ops().end(),
                                  [](const Op& op) { return std::holds_alternative<MapOp>(op); });
  const bool in_memory = pipeline->reader_ != nullptr && pipeline->reader_->in_memory();
  pipeline->immediate_ = in_memory && !mapped && bytes <= kImmediateBytes;
  return std::shared_ptr<const Pipeline>(std::move(pipeline));
}

Status Pipeline::OpenSource(const Source& source) {
  if (source.generator() != nullptr) return OpenForeign(source);
  ASSIGN_OR_RETURN(reader_, data::OpenSource(source));
  source_columns_ = reader_->columns();
  source_size_ = reader_->size();
  notices_ = reader_->notices();
  return absl::OkStatus();
}

Status Pipeline::OpenForeign(const Source& source) {
  ASSIGN_OR_RETURN(const SourceDef* def, FindSource(source.kind()));
  ASSIGN_OR_RETURN(const Fields fields, CheckFields(def->class_name, def->fields, source.fields()));
  const std::vector<std::string> column_names = fields.Strings("column_names");
  generator_ = source.generator();
  source_size_ = generator_->size();
  if (generator_->random_access() && source_size_ < 1) {
    return absl::InvalidArgumentError(absl::StrCat("GeneratorDataset: a source with random access has a length of ",
                                                   source_size_, ", expected at least 1"));
  }
  Generator::Row row;
  bool any = true;
  if (generator_->random_access()) {
    RETURN_IF_ERROR(AtSample(generator_->Get(0, &row), 0));
  } else {
    RETURN_IF_ERROR(generator_->Rewind());
    ASSIGN_OR_RETURN(any, generator_->Next(&row));
  }
  if (!any)
    return absl::InvalidArgumentError(
        absl::StrCat(generator_->place(), "GeneratorDataset: the source gives no sample"));
  if (row.size() != column_names.size()) {
    return absl::InvalidArgumentError(absl::StrCat(generator_->place(), "GeneratorDataset: a sample has ", row.size(),
                                                   row.size() == 1 ? " column" : " columns", ", column_names has ",
                                                   column_names.size()));
  }
  for (size_t k = 0; k < row.size(); ++k) source_columns_.push_back({column_names[k], row[k].type});
  if (source_size_ < 0) {
    source_size_ = 0;
    for (bool more = true; more;) {
      if (++source_size_ > kMaxSequence) {
        return absl::InvalidArgumentError(
            absl::StrCat("GeneratorDataset: no end after ", kMaxSequence, " samples; give the source a length"));
      }
      ASSIGN_OR_RETURN(more, generator_->Next(&row));
    }
  }
  return absl::OkStatus();
}

// A column on its way through the operations.
struct ColumnState {
  std::string name;
  size_t source = 0;
  std::vector<Transform> transforms;
  std::vector<std::string> places;  // of each transform: whose random numbers it has (ColumnChain::Make)
  absl::optional<Padding> padding;
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

Status CheckNames(const std::vector<ColumnState>& columns, const Op& op) {
  for (size_t k = 0; k < columns.size(); ++k) {
    for (size_t j = 0; j < k; ++j) {
      if (columns[j].name == columns[k].name)
        return absl::InvalidArgumentError(
            absl::StrCat(Name(op), ": two columns have the name '", columns[k].name, "'"));
    }
  }
  return absl::OkStatus();
}

Status ApplyMap(const MapOp& map, std::vector<ColumnState>* columns) {
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
  for (size_t i = 0; i < found.size(); ++i) {
    ColumnState& c = (*columns)[found[i]];
    if (c.padding && !map.transforms.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("map: column '", c.name, "' is padded: call map before padded_batch"));
    }
    for (size_t t = 0; t < map.transforms.size(); ++t) {
      c.transforms.push_back(map.transforms[t]);
      c.places.push_back(absl::StrCat(first.name, "/", first.transforms.size() + t));
    }
  }
  for (size_t i = 0; i < map.names.size(); ++i) (*columns)[found[i]].name = map.names[i];
  return CheckNames(*columns, map);
}

// What the operation does to columns.
Status ApplyToColumns(const Op& op, std::vector<ColumnState>* columns) {
  if (const auto* map = std::get_if<MapOp>(&op)) {
    return ApplyMap(*map, columns);
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
    return CheckNames(*columns, op);
  } else if (const auto* rename = std::get_if<RenameOp>(&op)) {
    std::vector<size_t> found;
    for (const std::string& name : rename->from) {
      ASSIGN_OR_RETURN(const size_t k, FindColumn(*columns, op, name));
      found.push_back(k);
    }
    for (size_t i = 0; i < found.size(); ++i) (*columns)[found[i]].name = rename->to[i];
    return CheckNames(*columns, op);
  }
  return absl::OkStatus();
}

// The type of the samples of a padded column, which are of type `type` before.
StatusOr<TensorType> Padded(const std::string& name, const TensorType& type, const Padding& padding) {
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("padded_batch: column '", name, "' is ", ToString(type), what));
  };
  if (padding.shape.size() != type.shape.size())
    return wrong(absl::StrCat(", its pad_info has ", padding.shape.size(), " dimensions"));
  for (size_t d = 0; d < padding.shape.size(); ++d) {
    if (padding.shape[d] < 1) return wrong(absl::StrCat(": expected sizes of at least 1, got ", padding.shape[d]));
    if (type.shape[d] > padding.shape[d])
      return wrong(absl::StrCat(", larger than its pad_info, which has ", padding.shape[d], " in dimension ", d + 1));
  }
  alignas(8) char stored[8];
  StoreDouble(type.dtype, stored, 0, padding.value);
  if (!IsFloat(type.dtype) && LoadAsDouble(type.dtype, stored, 0) != padding.value)
    return wrong(absl::StrCat(": expected a pad value of that type, got ", padding.value));
  return TensorType{type.dtype, Shape(padding.shape.begin(), padding.shape.end())};
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

void Pipeline::FreeShapes(const std::vector<ColumnState>& columns) {
  for (size_t k = 0; k < source_columns_.size(); ++k) {
    bool padded = false, whole = false, images = false;
    for (const ColumnState& c : columns) {
      if (c.source != k) continue;
      (c.padding ? padded : whole) = true;
      images |= std::any_of(c.transforms.begin(), c.transforms.end(), ImageChain::IsVision);
    }
    Shape& shape = source_columns_[k].type.shape;
    for (size_t d = 0; d < shape.size() && padded && !whole; ++d) {
      if (!images || d < 2) shape[d] = -1;  // an image keeps its channels
    }
  }
}

Status Pipeline::CompileColumns(const std::vector<Op>& ops) {
  if (source_columns_.empty()) return absl::InvalidArgumentError("the dataset has no column");
  std::vector<ColumnState> columns;
  for (size_t k = 0; k < source_columns_.size(); ++k) columns.push_back({source_columns_[k].name, k, {}, {}, {}});
  for (const Op& op : ops) RETURN_IF_ERROR(ApplyToColumns(op, &columns));
  if (generator_ != nullptr) FreeShapes(columns);
  bool known = true;
  for (ColumnState& c : columns) {
    ASSIGN_OR_RETURN(ColumnChain chain,
                     ColumnChain::Make(source_columns_[c.source], std::move(c.transforms), c.places));
    sample_types_.push_back(chain.out());
    if (c.padding) {
      ASSIGN_OR_RETURN(sample_types_.back(), Padded(c.name, chain.out(), *c.padding));
    }
    paddings_.push_back(c.padding);
    known &= IsKnown(sample_types_.back());
    chains_.push_back(std::move(chain));
    from_.push_back(c.source);
  }
  if (!known) {
    Scratch scratch;
    scratch.row.resize(source_columns_.size());
    RETURN_IF_ERROR(reader_->Read(0, &scratch.buffers, absl::MakeSpan(scratch.row)));
    for (size_t k = 0; k < chains_.size(); ++k) {
      if (paddings_[k]) continue;
      StatusOr<TensorType> type = chains_[k].TypeFor(scratch.row[from_[k]]);
      if (!type.ok()) return Annotate(type.status(), Where(0));
      sample_types_[k] = *std::move(type);
    }
  }
  for (size_t k = 0; k < chains_.size(); ++k) {
    TensorType type = sample_types_[k];
    if (batched()) type.shape.insert(type.shape.begin(), rows_);
    if (type.rank() > kMaxRank) {
      return absl::InvalidArgumentError(absl::StrCat("column '", columns[k].name, "' becomes ", ToString(type),
                                                     ": more than ", kMaxRank, " dimensions"));
    }
    schema_.push_back({columns[k].name, type});
  }
  return absl::OkStatus();
}

void Pipeline::MakeEpoch(int64_t number, Epoch* epoch) const {
  epoch->number = number;
  order_.Evaluate(options_.seed, number, &epoch->order);
  epoch->streams.resize(chains_.size());
  for (size_t k = 0; k < chains_.size(); ++k) {
    const auto& names = chains_[k].random_streams();
    epoch->streams[k].resize(names.size());
    for (size_t i = 0; i < names.size(); ++i) {
      epoch->streams[k][i] = StreamOf(names[i], static_cast<uint64_t>(number));
    }
  }
}

EpochOrder::Group Pipeline::RowsOf(const Epoch& epoch, int64_t batch) const {
  if (!batched()) return {static_cast<uint32_t>(batch * options_.feeds + options_.feed), 1};
  const EpochOrder::Group group = epoch.order.groups[batch];
  const int64_t offset = options_.feed * order_.batch()->size + options_.slice * rows_;
  const int64_t count = std::min(std::max<int64_t>(group.count - offset, 0), rows_);
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
  scratch->row.resize(source_columns_.size());
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t at = rows.begin + r, id = epoch.order.samples[at];
    RETURN_IF_ERROR(ReadSample(id, scratch, sequence));
    // The place in the global sequence, not the sample's own number: a repeated sample gets new random numbers.
    const int64_t place = sharding_.num_shards > 0 ? at * sharding_.num_shards + sharding_.shard_id : at;
    for (size_t k = 0; k < chains_.size(); ++k) {
      const Draws draws{options_.seed, epoch.streams[k], static_cast<uint64_t>(place)};
      const Status status =
          FillColumn(k, draws, scratch, static_cast<uint8_t*>(columns[k]) + r * sample_types_[k].bytes());
      if (!status.ok()) return Annotate(status, Where(id));
    }
  }
  for (size_t k = 0; k < chains_.size(); ++k) {
    const int64_t bytes = sample_types_[k].bytes();
    std::memset(static_cast<uint8_t*>(columns[k]) + rows.count * bytes, 0, (rows_ - rows.count) * bytes);
  }
  sequence->batch = batch + 1;
  return rows.count;
}

Status Pipeline::FillColumn(size_t k, const Draws& draws, Scratch* scratch, uint8_t* out) const {
  const RawColumn& raw = scratch->row[from_[k]];
  if (!paddings_[k]) return chains_[k].Apply(raw, draws, &scratch->image, sample_types_[k], out);
  ASSIGN_OR_RETURN(const TensorType type, chains_[k].TypeFor(raw));
  RETURN_IF_ERROR(Padded(source_columns_[from_[k]].name, type, *paddings_[k]).status());
  scratch->unpadded.resize(static_cast<size_t>(type.bytes()));
  RETURN_IF_ERROR(chains_[k].Apply(raw, draws, &scratch->image, type, scratch->unpadded.data()));
  CopyPadded(type, scratch->unpadded.data(), sample_types_[k], paddings_[k]->value, out);
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
  if (sequence->next % source_size_ == 0) RETURN_IF_ERROR(generator_->Rewind());
  const StatusOr<bool> more = generator_->Next(&scratch->foreign);
  RETURN_IF_ERROR(AtSample(more.status(), sequence->next));
  if (!*more) {
    return absl::InvalidArgumentError(absl::StrCat(generator_->place(), "GeneratorDataset: the source ended after ",
                                                   sequence->next % source_size_, " samples, expected ", source_size_));
  }
  return CheckForeign(scratch->foreign, sequence->next++);
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
  return absl::InvalidArgumentError(absl::StrCat(
      generator_->place(), "GeneratorDataset: ", Where(id), " is (", absl::StrJoin(got, ", ", write),
      "), sample 1 was (", absl::StrJoin(want, ", ", write), "): all must be alike, but for columns of padded_batch"));
}

std::string Pipeline::SampleAt(const Epoch& epoch, int64_t batch, int64_t row) const {
  return Where(epoch.order.samples[RowsOf(epoch, batch).begin + row]);
}

std::string Pipeline::Where(int64_t id) const {
  const int64_t index = id % source_size_;
  return reader_ != nullptr ? reader_->Where(index) : absl::StrCat("sample ", index + 1);
}

}  // namespace mslua::data
