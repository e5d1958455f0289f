#include "core/step/rank_state.h"

#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"
#include "core/base/hash.h"
#include "core/step/located_status.h"

namespace mslua {

const std::string& KeyOf(RankState& state, ParameterData& p) {
  if (!p.key.empty()) return p.key;
  const std::string name = p.name.empty() ? "Parameter" : p.name;
  std::string key = name;
  for (int copy = 2; !state.parameter_keys.insert(key).second; ++copy) key = absl::StrCat(name, "#", copy);
  p.key = std::move(key);
  return p.key;
}

namespace {

// The other pipeline stage that keeps a parameter; kNoStage: this rank's may have it.
int OtherStage(const GlobalView* view, const std::string& key) {
  const int owner = view == nullptr ? kNoStage : view->OwnerOf(key);
  return owner == kNoStage || owner == view->stage() ? kNoStage : owner;
}

Status KeptElsewhere(const GlobalView& view, const ParameterData& p, int stage) {
  return absl::FailedPreconditionError(absl::StrCat("parameter '", p.name, "' is kept by the ranks of pipeline stage ",
                                                    stage, "; this rank is of stage ", view.stage()));
}

// Memory for a value of a parameter, of a part of it or of all.
StatusOr<TensorView> AddValue(RankState& state, const ParameterData& p, const std::string& key,
                              const TensorType& type) {
  try {
    return state.store.Add(key, p.kind, type);
  } catch (const std::bad_alloc&) {
    const Status none = absl::ResourceExhaustedError(
        absl::StrCat("parameter '", p.name, "' ", ToString(type), " needs ", type.bytes(), " bytes: out of memory"));
    return WithExitCode(AtLine(none, p.made_at.get()), kExitEnvironment);
  }
}

// What a first value was made of is not needed any more: memory, files.
void ReleaseSource(ParameterData& p) {
  p.init.constant = Tensor();
  p.init.read = nullptr;
}

uint32_t ChecksumOf(const void* data, const TensorType& type) {
  return Crc32c(data, static_cast<size_t>(type.bytes()));
}

// Fills the part at `begin` of a parameter's first value.
Status FillFirstValue(const RankState& state, ParameterData& p, const TensorType& whole,
                      absl::Span<const int64_t> begin, const TensorView& part) {
  RETURN_IF_ERROR(
      Annotate(Fill(p.init, state.seed, p.name, whole, begin, part), absl::StrCat("parameter '", p.name, "'")));
  if (p.init.kind == "tensor" && state.ranks > 1) p.given = ChecksumOf(p.init.constant.data.get(), whole);
  if (p.zero_row < 0 || p.init.kind == "read" || whole.rank() == 0) return absl::OkStatus();
  const int64_t row = p.zero_row - begin[0], rows = part.type.shape[0];
  if (row < 0 || row >= rows) return absl::OkStatus();
  const int64_t bytes = part.type.bytes() / rows;
  std::memset(static_cast<char*>(part.data) + row * bytes, 0, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

// This rank's part of a parameter's first value.
StatusOr<TensorView> MakePart(RankState& state, ParameterData& p, const GlobalView::Sharded& sharded) {
  ASSIGN_OR_RETURN(const TensorView value, AddValue(state, p, p.key, sharded.local()));
  RETURN_IF_ERROR(FillFirstValue(state, p, sharded.whole(), sharded.part.begin, value));
  ReleaseSource(p);
  return value;
}

// This rank's part of a value that was made whole, by load_checkpoint say, before a graph was sharded.
StatusOr<TensorView> KeepPart(RankState& state, ParameterData& p, const GlobalView::Sharded& sharded) {
  ASSIGN_OR_RETURN(const Block whole, state.store.Retype(p.key, sharded.local()));
  ASSIGN_OR_RETURN(const TensorView kept, state.store.WriteInPlace(*state.store.Find(p.key)));
  p.given = ChecksumOf(whole.data(), sharded.whole());
  CopyPart(sharded.whole(), sharded.part.begin, sharded.part.size, whole.data(), kept.data);
  return kept;
}

}  // namespace

StatusOr<TensorView> ValueOf(RankState& state, ParameterData& p) {
  const std::string& key = KeyOf(state, p);
  const GlobalView* view = state.view.get();
  const GlobalView::Sharded* sharded = view == nullptr ? nullptr : view->Find(key);
  if (const Store::Entry* entry = state.store.Find(key)) {
    if (sharded == nullptr || entry->type != sharded->whole() || sharded->part.all()) return state.store.Read(*entry);
    return KeepPart(state, p, *sharded);
  }
  if (const int other = OtherStage(view, key); other != kNoStage) {
    return KeptElsewhere(*view, p, other);
  }
  if (sharded != nullptr) return MakePart(state, p, *sharded);
  ASSIGN_OR_RETURN(const TensorView value, AddValue(state, p, key, p.type));
  RETURN_IF_ERROR(FillFirstValue(state, p, value.type, Shape(value.type.shape.size(), 0), value));
  ReleaseSource(p);
  return value;
}

StatusOr<const GlobalView::Sharded*> PartOf(const RankState& state, const ParameterData& p) {
  const GlobalView* view = state.view.get();
  const GlobalView::Sharded* none = nullptr;
  if (view == nullptr || p.key.empty()) return none;
  if (const int other = OtherStage(view, p.key); other != kNoStage) return KeptElsewhere(*view, p, other);
  const GlobalView::Sharded* sharded = view->Find(p.key);
  return sharded == nullptr || sharded->part.all() ? none : sharded;
}

Status CheckWhole(const RankState& state, const ParameterData& p) {
  ASSIGN_OR_RETURN(const GlobalView::Sharded* const sharded, PartOf(state, p));
  if (sharded == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "parameter '", p.name, "' is ", ToString(sharded->whole()), ", and this rank keeps ", ToString(sharded->local()),
      " of it: what a rank computes by itself would be of its part; evaluate with model:eval or model:predict in the "
      "parallel mode that it was trained with, or read the parameter's .value on every rank, which is whole"));
}

StatusOr<absl::optional<uint32_t>> ChecksumOfFirstValue(const RankState& state, ParameterData& p) {
  const Initializer& init = p.init;
  if (init.kind == "tensor" && init.constant.data != nullptr) return ChecksumOf(init.constant.data.get(), p.type);
  if (init.kind == "tensor" || init.kind == "read") return absl::nullopt;
  const Block memory(p.type.bytes());
  RETURN_IF_ERROR(FillFirstValue(state, p, p.type, Shape(p.type.shape.size(), 0), {p.type, memory.data()}));
  return ChecksumOf(memory.data(), p.type);
}

StatusOr<Tensor> BorrowValue(RankState& state, ParameterData& p) {
  RETURN_IF_ERROR(CheckWhole(state, p));
  ASSIGN_OR_RETURN(const TensorView value, ValueOf(state, p));
  return Tensor{value.type, std::shared_ptr<void>(value.data, [](void*) {})};
}

Status SetValue(RankState& state, ParameterData& p, const Tensor& value) {
  if (value.type != p.type) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", p.name, "' is ", ToString(p.type), ", the value is ", ToString(value.type)));
  }
  if (state.ranks > 1) p.given = ChecksumOf(value.data.get(), value.type);
  const GlobalView* view = state.view.get();
  if (OtherStage(view, KeyOf(state, p)) != kNoStage) return absl::OkStatus();  // all ranks set it, that stage's keep it
  RETURN_IF_ERROR(ValueOf(state, p).status());
  ASSIGN_OR_RETURN(const TensorView memory, state.store.Write(*state.store.Find(p.key)));
  if (const GlobalView::Sharded* sharded = view == nullptr ? nullptr : view->Find(p.key)) {
    CopyPart(sharded->whole(), sharded->part.begin, sharded->part.size, value.data.get(), memory.data);
    return absl::OkStatus();
  }
  std::memcpy(memory.data, value.data.get(), static_cast<size_t>(p.type.bytes()));
  return absl::OkStatus();
}

}  // namespace mslua
