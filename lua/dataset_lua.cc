#include "lua/dataset_lua.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/exit_code.h"
#include "core/base/input_file.h"
#include "core/base/parallel_for.h"
#include "core/base/text.h"
#include "core/data/derived.h"
#include "core/data/vision.h"
#include "core/step/located_status.h"
#include "lua/limits_lua.h"
#include "lua/lua_stack.h"
#include "lua/sample_code_lua.h"
#include "lua/session.h"
#include "lua/tensor_lua.h"

namespace mslua {
namespace {

using DatasetObject = std::shared_ptr<DatasetHandle>;

// A value kept alive in the registry.
class Reference {
 public:
  Reference(Session& session, int index) : session_(session) {
    lua_pushvalue(session.lua(), index);
    ref_ = luaL_ref(session.lua(), LUA_REGISTRYINDEX);
  }
  ~Reference() { luaL_unref(session_.lua(), LUA_REGISTRYINDEX, ref_); }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  void Push() const { lua_rawgeti(session_.lua(), LUA_REGISTRYINDEX, ref_); }

 private:
  Session& session_;
  int ref_;
};

// The lines that define a function.
class Definition {
 public:
  // Of the function on top of the stack.
  explicit Definition(lua_State* L) {
    lua_Debug info;
    lua_pushvalue(L, -1);
    lua_getinfo(L, ">S", &info);
    source_ = info.source;
    first_ = info.linedefined;
    last_ = info.lastlinedefined;
  }

  // The lines as the file has them now; file and line where the file is not there.
  std::string Lines() const {
    constexpr int64_t kMaxBytes = 64 << 20;
    const StatusOr<std::string> text = source_[0] == '@' ? ReadFile(source_.substr(1), kMaxBytes) : source_;
    if (!text.ok() || source_[0] == '=') return absl::StrCat(source_, ":", first_);
    const std::vector<absl::string_view> lines = absl::StrSplit(*text, '\n');
    const size_t end = std::min<size_t>(lines.size(), last_);
    const size_t begin = std::min<size_t>(end, std::max(first_, 1) - 1);
    return absl::StrJoin(lines.begin() + begin, lines.begin() + end, "\n");
  }

 private:
  std::string source_;  // "@FILE", "=NAME" or a chunk's text
  int first_ = 0, last_ = 0;
};

// GeneratorDataset: get(i) with a length, or a function that gives an iterator.
class LuaGenerator : public data::Generator {
 public:
  // The user gave `method` the function on top of the stack, of which `function` is made.
  LuaGenerator(Session& session, int function, int64_t length, std::string method)
      : session_(session),
        function_(session, function),
        length_(length),
        method_(std::move(method)),
        written_(WhereDefined(session.lua())),
        definition_(session.lua()) {}

  std::string name() const override {
    return written_->file.empty() ? method_ : absl::StrCat(written_->file, ":", written_->line, ": ", method_);
  }
  std::string identity() const override { return absl::StrCat(method_, ": ", definition_.Lines()); }
  int64_t size() const override { return length_; }
  bool random_access() const override { return length_ >= 0; }

  Status Get(int64_t i, Row* row) override {
    lua_State* L = session_.lua();
    const StackGuard guard(L);
    const RunningLua running(L, written_);
    const int base = lua_gettop(L);
    function_.Push();
    lua_pushnumber(L, static_cast<double>(i + 1));
    RETURN_IF_ERROR(CallAndNote(1, LUA_MULTRET));
    return Read(base, row);
  }

  Status Rewind() override {
    lua_State* L = session_.lua();
    const StackGuard guard(L);
    function_.Push();
    RETURN_IF_ERROR(CallAndNote(0, 1));
    if (lua_type(L, -1) != LUA_TFUNCTION) {
      return absl::InvalidArgumentError(
          absl::StrCat(method_, ": the source should return an iterator function, got ", Describe(L, -1)));
    }
    iterator_ = std::make_unique<Reference>(session_, -1);
    return absl::OkStatus();
  }

  StatusOr<bool> Next(Row* row) override {
    lua_State* L = session_.lua();
    const StackGuard guard(L);
    const RunningLua running(L, written_);
    const int base = lua_gettop(L);
    iterator_->Push();
    RETURN_IF_ERROR(CallAndNote(0, LUA_MULTRET));
    if (lua_gettop(L) == base || lua_isnil(L, base + 1)) return false;
    RETURN_IF_ERROR(Read(base, row));
    return true;
  }

  void Counted(int64_t samples) override {
    constexpr std::chrono::seconds kQuiet{5};
    const auto now = std::chrono::steady_clock::now();
    if (samples == 2) counting_since_ = now;
    if (!counting_since_ || now - *counting_since_ < kQuiet) return;
    counting_since_.reset();
    std::fprintf(stderr,
                 "mslua: note: %s: counting the samples of the iterator, %lld so far: give num_samples, "
                 "or a length with function(i)\n",
                 name().c_str(), static_cast<long long>(samples));
  }

 private:
  // Of random tensors, and of math.random.
  StatusOr<double> NumbersDrawn() {
    lua_State* L = session_.lua();
    const StackGuard guard(L);
    lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
    lua_getfield(L, -1, "mslua.random_calls");
    RETURN_IF_ERROR(session_.Call(0, 1));
    return lua_tonumber(L, -1) + static_cast<double>(session_.random_tensors);
  }

  // Calls the function below `arguments` values, and says once in a training that it draws random numbers.
  Status CallAndNote(int arguments, int results) {
    if (watched_ == 0 || session_.options().verb != "train" || session_.options().rank > 0)
      return session_.Call(arguments, results);
    --watched_;
    ASSIGN_OR_RETURN(const double before, NumbersDrawn());
    RETURN_IF_ERROR(session_.Call(arguments, results));
    ASSIGN_OR_RETURN(const double after, NumbersDrawn());
    if (after == before) return absl::OkStatus();
    watched_ = 0;
    std::fprintf(stderr,
                 "mslua: note: %s: the function draws random numbers: a training that resumes draws others. A file of "
                 "Lua, GeneratorDataset(\"rows.lua\", ...), draws the same ones for each sample\n",
                 name().c_str());
    return absl::OkStatus();
  }

  // The values above `base`, a column each.
  Status Read(int base, Row* row) {
    lua_State* L = session_.lua();
    kept_.clear();
    row->clear();
    for (int i = base + 1; i <= lua_gettop(L); ++i) {
      ASSIGN_OR_RETURN(Tensor t,
                       ReadTensor(session_, L, i, absl::nullopt, absl::StrCat(method_, ": column ", i - base)));
      kept_.push_back(std::move(t));
    }
    for (const Tensor& t : kept_) row->push_back(t.view());
    return absl::OkStatus();
  }

  Session& session_;
  const Reference function_;
  const int64_t length_;
  const std::string method_;
  const std::shared_ptr<const Location> written_;
  const Definition definition_;
  std::unique_ptr<Reference> iterator_;
  int watched_ = 100;  // samples until it counts as a function that draws nothing
  absl::optional<std::chrono::steady_clock::time_point> counting_since_;  // none: the note is printed
  std::vector<Tensor> kept_;
};

// ------------------------------------------------------------------------------------ the description

void PushStrings(lua_State* L, const std::vector<std::string>& list) {
  lua_createtable(L, static_cast<int>(list.size()), 0);
  for (size_t i = 0; i < list.size(); ++i) {
    PushString(L, list[i]);
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
}

// Reads fields of the table at `index` into numbers; the first error is kept.
class FieldReader {
 public:
  FieldReader(lua_State* L, int index, std::string what)
      : lua_(L), index_(AbsoluteIndex(L, index)), what_(std::move(what)) {}

  FieldReader& Int(const char* name, int64_t* value) { return Keep(FieldInt(lua_, index_, name, *value), value); }
  FieldReader& Number(const char* name, double* value) { return Keep(FieldNumber(lua_, index_, name, *value), value); }
  FieldReader& Bool(const char* name, bool* value) { return Keep(FieldBool(lua_, index_, name, *value), value); }
  FieldReader& String(const char* name, std::string* value) {
    return Keep(FieldString(lua_, index_, name, *value), value);
  }
  FieldReader& Numbers(const char* name, std::vector<double>* values) {
    const StackGuard guard(lua_);
    lua_getfield(lua_, index_, name);
    if (lua_type(lua_, -1) != LUA_TTABLE)
      return Fail(
          absl::InvalidArgumentError(absl::StrCat(name, ": expected a list of numbers, got ", Describe(lua_, -1))));
    const int n = static_cast<int>(lua_objlen(lua_, -1));
    for (int i = 1; i <= n; ++i) {
      lua_rawgeti(lua_, -1, i);
      const auto v = ReadNumber(lua_, -1, absl::StrCat(name, "[", i, "]"));
      lua_pop(lua_, 1);
      if (!v.ok()) return Fail(v.status());
      values->push_back(*v);
    }
    return *this;
  }
  FieldReader& Type(const char* name, DType* value) {
    const StackGuard guard(lua_);
    lua_getfield(lua_, index_, name);
    return Keep(ReadDType(lua_, -1, name), value);
  }
  Status status() const { return Annotate(status_, what_); }

 private:
  template <class T>
  FieldReader& Keep(StatusOr<T> read, T* value) {
    if (!read.ok()) return Fail(read.status());
    *value = *std::move(read);
    return *this;
  }
  FieldReader& Fail(const Status& status) {
    if (status_.ok()) status_ = status;
    return *this;
  }

  lua_State* lua_;
  int index_;
  std::string what_;
  Status status_;
};

Status Unknown(absl::string_view what, const std::string& kind, const std::vector<std::string>& known) {
  return absl::InvalidArgumentError(absl::StrCat("dataset: unknown ", what, " '", kind, "'", DidYouMean(kind, known)));
}

// A list of strings; nil is an empty one.
StatusOr<std::vector<std::string>> FieldStrings(lua_State* L, int index, const char* name) {
  const StackGuard guard(L);
  std::vector<std::string> list;
  lua_getfield(L, index, name);
  for (int i = 1; lua_type(L, -1) == LUA_TTABLE && i <= static_cast<int>(lua_objlen(L, -1)); ++i) {
    lua_rawgeti(L, -1, i);
    ASSIGN_OR_RETURN(std::string item, ReadString(L, -1, absl::StrCat(name, "[", i, "]")));
    list.push_back(std::move(item));
    lua_pop(L, 1);
  }
  return list;
}

// The list at the top of the stack: names and values of columns.
StatusOr<std::vector<data::NamedArray>> ReadArrays(lua_State* L, Session& session) {
  std::vector<data::NamedArray> arrays;
  const int n = lua_type(L, -1) == LUA_TTABLE ? static_cast<int>(lua_objlen(L, -1)) : 0;
  for (int i = 1; i <= n; ++i) {
    const StackGuard guard(L);
    lua_rawgeti(L, -1, i);
    ASSIGN_OR_RETURN(const std::string name, FieldString(L, -1, "name", absl::StrCat("column_", i - 1)));
    lua_getfield(L, -1, "value");
    ASSIGN_OR_RETURN(const Tensor t,
                     ReadTensor(session, L, -1, absl::nullopt, absl::StrCat("dataset: column '", name, "'")));
    arrays.push_back({name, t.type, t.data});
  }
  return arrays;
}

// The list at the top of the stack.
StatusOr<std::vector<double>> ReadNumbers(lua_State* L, const std::string& what) {
  if (lua_type(L, -1) != LUA_TTABLE)
    return absl::InvalidArgumentError(absl::StrCat(what, ": expected a list of numbers, got ", Describe(L, -1)));
  std::vector<double> numbers;
  for (int i = 1; i <= static_cast<int>(lua_objlen(L, -1)); ++i) {
    const StackGuard guard(L);
    lua_rawgeti(L, -1, i);
    ASSIGN_OR_RETURN(const double number, ReadNumber(L, -1, absl::StrCat(what, "[", i, "]")));
    numbers.push_back(number);
  }
  return numbers;
}

// The table at the top of the stack; numbers become texts.
StatusOr<std::map<std::string, std::string>> ReadTexts(lua_State* L, const std::string& what) {
  std::map<std::string, std::string> texts;
  if (lua_type(L, -1) != LUA_TTABLE)
    return absl::InvalidArgumentError(absl::StrCat(what, ": expected a table, got ", Describe(L, -1)));
  const StackGuard guard(L);
  for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) != LUA_TSTRING || (lua_type(L, -1) != LUA_TSTRING && lua_type(L, -1) != LUA_TNUMBER)) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": expected names with texts, got ", Describe(L, -2), " = ", Describe(L, -1)));
    }
    lua_pushvalue(L, -1);  // lua_tolstring changes a number in its place
    texts[lua_tostring(L, -3)] = lua_tostring(L, -1);
    lua_pop(L, 1);
  }
  return texts;
}

// A file of Lua for the loader's threads: the table {file =, arguments =} at `index`.
StatusOr<std::shared_ptr<const data::SampleCode>> ReadCode(lua_State* L, Session& session, int index) {
  constexpr int64_t kMaxBytes = 64 << 20;
  const SessionOpener open = SessionOpenerOf(L);
  if (open == nullptr) return absl::InternalError("dataset: this session cannot make others");
  SampleFile file;
  ASSIGN_OR_RETURN(file.path, FieldString(L, index, "file", ""));
  ASSIGN_OR_RETURN(file.arguments, FieldString(L, index, "arguments", "nil"));
  ASSIGN_OR_RETURN(file.text, ReadFile(file.path, kMaxBytes));
  file.seed = session.state().seed;
  file.traceback = session.options().traceback;
  if (session.hang_timeout_s > 0) file.limit_seconds = session.hang_timeout_s;
  return MakeSampleCode(std::move(file), open);
}

// The field's value out of the table at `index`; monostate where there is none.
StatusOr<data::FieldValue> ReadField(lua_State* L, Session& session, int index, const std::string& kind,
                                     const data::FieldDef& field) {
  using data::FieldType;
  using data::FieldValue;
  const StackGuard guard(L);
  const std::string what = absl::StrCat("dataset '", kind, "': ", field.name);
  lua_getfield(L, index, field.name.c_str());
  if (lua_isnil(L, -1)) return FieldValue();
  const auto value = [](auto read) { return read.ok() ? StatusOr<FieldValue>(*std::move(read)) : read.status(); };
  switch (field.type) {
    case FieldType::kBool:
      return value(ReadBool(L, -1, what));
    case FieldType::kInt:
      return value(ReadInt(L, -1, what));
    case FieldType::kNumber:
      return value(ReadNumber(L, -1, what));
    case FieldType::kString:
      return value(ReadString(L, -1, what));
    case FieldType::kNumbers:
    case FieldType::kInts:
      if (lua_type(L, -1) == LUA_TNUMBER) return value(ReadNumber(L, -1, what));
      return value(ReadNumbers(L, what));
    case FieldType::kPaths:
      if (lua_type(L, -1) == LUA_TSTRING) return value(ReadString(L, -1, what));
      [[fallthrough]];
    case FieldType::kStrings:
      return value(FieldStrings(L, index, field.name.c_str()));
    case FieldType::kTexts:
      return value(ReadTexts(L, what));
    case FieldType::kArrays:
      return value(ReadArrays(L, session));
    case FieldType::kGenerator: {
      if (lua_type(L, -1) == LUA_TTABLE) return value(ReadCode(L, session, lua_gettop(L)));
      if (lua_type(L, -1) != LUA_TFUNCTION)
        return absl::InvalidArgumentError(
            absl::StrCat("GeneratorDataset: source: expected a function, got ", Describe(L, -1)));
      ASSIGN_OR_RETURN(const int64_t length, FieldInt(L, index, "length", -1));
      ASSIGN_OR_RETURN(std::string method, FieldString(L, index, "method", "GeneratorDataset"));
      const int function = lua_gettop(L);
      lua_getfield(L, index, "user_function");
      if (lua_isnil(L, -1)) lua_pushvalue(L, function);
      return FieldValue(std::shared_ptr<data::Generator>(
          std::make_shared<LuaGenerator>(session, function, length, std::move(method))));
    }
  }
  return absl::InternalError("unknown type of a field");
}

// Those of the fields that the table at `index` has.
StatusOr<data::FieldMap> ReadFields(lua_State* L, Session& session, int index, const std::string& kind,
                                    const std::vector<data::FieldDef>& fields) {
  data::FieldMap values;
  for (const data::FieldDef& field : fields) {
    ASSIGN_OR_RETURN(data::FieldValue value, ReadField(L, session, index, kind, field));
    if (!std::holds_alternative<std::monostate>(value)) values[field.name] = std::move(value);
  }
  return values;
}

// A source that is made of other datasets, the objects of the list `parts`.
StatusOr<data::Source> ReadDerived(lua_State* L, int index, const std::string& kind) {
  const StackGuard guard(L);
  std::vector<std::shared_ptr<const data::Dataset>> parts;
  lua_getfield(L, index, "parts");
  const int n = lua_type(L, -1) == LUA_TTABLE ? static_cast<int>(lua_objlen(L, -1)) : 0;
  for (int i = 1; i <= n; ++i) {
    const StackGuard item(L);
    lua_rawgeti(L, -1, i);
    const auto* part = ToObject<DatasetObject>(L, -1);
    if (part == nullptr)
      return absl::InvalidArgumentError(absl::StrCat(kind, ": expected a Dataset, got ", Describe(L, -1)));
    parts.push_back(std::make_shared<const data::Dataset>((*part)->description));
  }
  if (parts.empty()) return absl::InvalidArgumentError(absl::StrCat(kind, ": expected a dataset"));
  if (kind == "zip") return data::ZipSource(std::move(parts));
  if (kind == "concat") return data::ConcatSource(std::move(parts));
  ASSIGN_OR_RETURN(const std::string folder, FieldString(L, index, "folder", ""));
  return data::CacheSource(parts[0], folder);
}

StatusOr<data::Source> ReadSource(lua_State* L, Session& session, int index) {
  index = AbsoluteIndex(L, index);
  if (lua_type(L, index) != LUA_TTABLE)
    return absl::InvalidArgumentError(absl::StrCat("dataset: source: expected a table, got ", Describe(L, index)));
  ASSIGN_OR_RETURN(const std::string kind, FieldString(L, index, "kind", ""));
  if (kind == "zip" || kind == "concat" || kind == "cache") return ReadDerived(L, index, kind);
  ASSIGN_OR_RETURN(const data::SourceDef* def, data::FindSource(kind));
  ASSIGN_OR_RETURN(data::FieldMap values, ReadFields(L, session, index, kind, def->fields));
  RETURN_IF_ERROR(data::CheckFields(def->class_name, def->fields, values).status());
  return data::Source(kind, std::move(values));
}

// The transforms that are no VisionDef, by kind.
using ReadsTransform = data::Transform (*)(FieldReader* fields);
const std::pair<absl::string_view, ReadsTransform> kTransforms[] = {
    {"random_crop",
     [](FieldReader* fields) -> data::Transform {
       data::RandomCrop t;
       fields->Int("height", &t.height)
           .Int("width", &t.width)
           .Int("left", &t.left)
           .Int("top", &t.top)
           .Int("right", &t.right)
           .Int("bottom", &t.bottom);
       return t;
     }},
    {"random_horizontal_flip",
     [](FieldReader* fields) -> data::Transform {
       data::RandomHorizontalFlip t;
       fields->Number("prob", &t.prob);
       return t;
     }},
    {"resize",
     [](FieldReader* fields) -> data::Transform {
       data::Resize t;
       fields->Int("height", &t.height).Int("width", &t.width);
       return t;
     }},
    {"center_crop",
     [](FieldReader* fields) -> data::Transform {
       data::CenterCrop t;
       fields->Int("height", &t.height).Int("width", &t.width);
       return t;
     }},
    {"rescale",
     [](FieldReader* fields) -> data::Transform {
       data::Rescale t;
       fields->Number("scale", &t.scale).Number("shift", &t.shift);
       return t;
     }},
    {"normalize",
     [](FieldReader* fields) -> data::Transform {
       data::Normalize t;
       fields->Numbers("mean", &t.mean).Numbers("std", &t.std);
       return t;
     }},
    {"hwc2chw", [](FieldReader*) -> data::Transform { return data::HWC2CHW{}; }},
    {"type_cast",
     [](FieldReader* fields) -> data::Transform {
       data::TypeCast t;
       fields->Type("dtype", &t.dtype);
       return t;
     }},
    {"one_hot",
     [](FieldReader* fields) -> data::Transform {
       data::OneHot t;
       fields->Int("num_classes", &t.num_classes);
       return t;
     }},
};

StatusOr<data::Transform> ReadTransform(lua_State* L, Session& session, int index) {
  ASSIGN_OR_RETURN(const std::string kind, FieldString(L, index, "kind", ""));
  if (const data::VisionDef* def = data::FindVision(kind)) {
    ASSIGN_OR_RETURN(data::FieldMap values, ReadFields(L, session, index, kind, def->fields));
    return data::Vision{kind, std::move(values)};
  }
  std::vector<std::string> known;
  for (const auto& [name, read] : kTransforms) {
    if (name == kind) {
      FieldReader fields(L, index, kind);
      const data::Transform transform = read(&fields);
      RETURN_IF_ERROR(fields.status());
      return transform;
    }
    known.emplace_back(name);
  }
  for (const data::VisionDef& def : data::VisionTransforms()) known.push_back(def.kind);
  return Unknown("transform", kind, known);
}

// The field `padding` of a batch: {name, shape, value} for each column.
StatusOr<std::map<std::string, data::Padding>> ReadPadding(lua_State* L, int index) {
  const StackGuard guard(L);
  std::map<std::string, data::Padding> paddings;
  lua_getfield(L, index, "padding");
  const int n = lua_type(L, -1) == LUA_TTABLE ? static_cast<int>(lua_objlen(L, -1)) : 0;
  for (int i = 1; i <= n; ++i) {
    const StackGuard item(L);
    lua_rawgeti(L, -1, i);
    data::Padding padding;
    ASSIGN_OR_RETURN(const std::string name, FieldString(L, -1, "name", ""));
    RETURN_IF_ERROR(FieldReader(L, -1, "padded_batch").Number("value", &padding.value).status());
    lua_getfield(L, -1, "shape");
    ASSIGN_OR_RETURN(padding.shape, ReadInts(L, -1, "padded_batch: pad_info"));
    paddings[name] = std::move(padding);
  }
  return paddings;
}

// The fields of a batch whose `lengths` is a tensor of int32; null: they are absent.
StatusOr<std::shared_ptr<const data::Buckets>> ReadBuckets(lua_State* L, int index) {
  constexpr char kWhat[] = "bucket_batch_by_length";
  const StackGuard guard(L);
  lua_getfield(L, index, "lengths");
  if (lua_isnil(L, -1)) return std::shared_ptr<const data::Buckets>();
  const auto* lengths = ToObject<Tensor>(L, -1);
  if (lengths == nullptr || lengths->type.dtype != DType::kI32 || lengths->type.rank() != 1)
    return absl::InvalidArgumentError(absl::StrCat(kWhat, ": lengths: expected a tensor i32[n]"));
  auto buckets = std::make_shared<data::Buckets>();
  const auto* first = static_cast<const int32_t*>(lengths->data.get());
  buckets->lengths = std::make_shared<const std::vector<int32_t>>(first, first + lengths->type.elements());
  lua_getfield(L, index, "boundaries");
  ASSIGN_OR_RETURN(buckets->boundaries, ReadInts(L, -1, absl::StrCat(kWhat, ": bucket_boundaries")));
  lua_getfield(L, index, "sizes");
  ASSIGN_OR_RETURN(buckets->sizes, ReadInts(L, -1, absl::StrCat(kWhat, ": bucket_batch_sizes")));
  return std::shared_ptr<const data::Buckets>(std::move(buckets));
}

// The operations "code", "weighted" and "mix".
Status AppendSampleOp(lua_State* L, Session& session, int index, const std::string& kind, data::Dataset* d) {
  FieldReader fields(L, index, kind);
  if (kind == "code") {
    data::CallOp op;
    ASSIGN_OR_RETURN(op.code, ReadCode(L, session, index));
    ASSIGN_OR_RETURN(op.inputs, FieldStrings(L, index, "inputs"));
    ASSIGN_OR_RETURN(op.outputs, FieldStrings(L, index, "outputs"));
    *d = d->Call(std::move(op));
  } else if (kind == "weighted") {
    data::WeightedOp op;
    std::vector<double> weights;
    RETURN_IF_ERROR(
        fields.Numbers("weights", &weights).Int("count", &op.count).Bool("replacement", &op.replacement).status());
    op.weights = std::make_shared<const std::vector<double>>(std::move(weights));
    *d = d->Weighted(std::move(op));
  } else {
    data::MixOp op;
    RETURN_IF_ERROR(fields.Bool("box", &op.cut)
                        .Number("alpha", &op.alpha)
                        .Number("prob", &op.prob)
                        .String("image", &op.image)
                        .String("label", &op.label)
                        .status());
    *d = d->Mix(std::move(op));
  }
  return absl::OkStatus();
}

Status AppendOp(lua_State* L, Session& session, int index, DatasetHandle* handle) {
  const StackGuard guard(L);
  index = AbsoluteIndex(L, index);
  ASSIGN_OR_RETURN(const std::string kind, FieldString(L, index, "kind", ""));
  FieldReader fields(L, index, kind);
  data::Dataset& d = handle->description;
  if (kind == "map") {
    data::MapOp op;
    ASSIGN_OR_RETURN(op.columns, FieldStrings(L, index, "columns"));
    ASSIGN_OR_RETURN(op.names, FieldStrings(L, index, "names"));
    lua_getfield(L, index, "transforms");
    const int n = lua_type(L, -1) == LUA_TTABLE ? static_cast<int>(lua_objlen(L, -1)) : 0;
    for (int i = 1; i <= n; ++i) {
      lua_rawgeti(L, -1, i);
      ASSIGN_OR_RETURN(data::Transform t, ReadTransform(L, session, lua_gettop(L)));
      op.transforms.push_back(std::move(t));
      lua_pop(L, 1);
    }
    d = d.Map(std::move(op));
    return absl::OkStatus();
  }
  int64_t n = 0;
  if (kind == "code" || kind == "weighted" || kind == "mix") return AppendSampleOp(L, session, index, kind, &d);
  if (kind == "project" || kind == "rename") {
    ASSIGN_OR_RETURN(std::vector<std::string> columns, FieldStrings(L, index, "columns"));
    ASSIGN_OR_RETURN(std::vector<std::string> names, FieldStrings(L, index, "names"));
    if (names.size() != columns.size() && !(names.empty() && kind == "project"))
      return absl::InvalidArgumentError(
          absl::StrCat(kind, ": ", columns.size(), " columns and ", names.size(), " new names"));
    d = kind == "project" ? d.Project({std::move(columns), std::move(names)})
                          : d.Rename({std::move(columns), std::move(names)});
  } else if (kind == "keep") {
    lua_getfield(L, index, "samples");
    ASSIGN_OR_RETURN(std::vector<int64_t> samples, ReadInts(L, -1, "keep: samples"));
    for (int64_t& sample : samples) --sample;
    d = d.Keep({std::make_shared<const std::vector<int64_t>>(std::move(samples))});
  } else if (kind == "shuffle") {
    RETURN_IF_ERROR(fields.Int("buffer_size", &n).status());
    d = d.Shuffle({n});
  } else if (kind == "batch") {
    data::BatchOp op;
    RETURN_IF_ERROR(fields.Int("size", &op.size).Bool("drop_remainder", &op.drop_remainder).status());
    ASSIGN_OR_RETURN(op.padding, ReadPadding(L, index));
    ASSIGN_OR_RETURN(op.buckets, ReadBuckets(L, index));
    handle->batch = op.size;
    d = d.Batch(std::move(op));
  } else if (kind == "repeat" || kind == "take" || kind == "skip") {
    RETURN_IF_ERROR(fields.Int("count", &n).status());
    d = kind == "repeat" ? d.Repeat({n}) : kind == "take" ? d.Take({n}) : d.Skip({n});
  } else {
    return Unknown(
        "operation", kind,
        {"map", "shuffle", "batch", "repeat", "take", "skip", "project", "rename", "keep", "code", "weighted", "mix"});
  }
  return absl::OkStatus();
}

// core.dataset(spec)
StatusOr<int> MakeDataset(lua_State* L, Session& session) {
  RETURN_IF_ERROR(
      CheckFields(L, 1, "dataset",
                  {"source", "num_shards", "shard_id", "num_parallel_workers", "ops", "seed", "made_at", "ragged"}));
  lua_getfield(L, 1, "source");
  ASSIGN_OR_RETURN(data::Source source, ReadSource(L, session, -1));
  data::Sharding sharding;
  int64_t seed = -1, workers = 0;
  RETURN_IF_ERROR(FieldReader(L, 1, "dataset")
                      .Int("num_shards", &sharding.num_shards)
                      .Int("shard_id", &sharding.shard_id)
                      .Int("num_parallel_workers", &workers)
                      .Int("seed", &seed)
                      .status());
  auto handle = std::make_shared<DatasetHandle>(
      DatasetHandle{data::Dataset(std::move(source), sharding), 0, seed, nullptr, 1, nullptr, workers, {}});
  ASSIGN_OR_RETURN(handle->ragged, FieldBool(L, 1, "ragged", false));
  ASSIGN_OR_RETURN(const std::string made_at, FieldString(L, 1, "made_at", ""));
  if (const size_t colon = made_at.rfind(':'); colon != std::string::npos) {
    handle->made_at.file = made_at.substr(0, colon);
    if (!absl::SimpleAtoi(made_at.substr(colon + 1), &handle->made_at.line)) handle->made_at.line = 0;
  }
  lua_getfield(L, 1, "ops");
  const int ops = lua_gettop(L), n = lua_type(L, -1) == LUA_TTABLE ? static_cast<int>(lua_objlen(L, -1)) : 0;
  for (int i = 1; i <= n; ++i) {
    lua_rawgeti(L, ops, i);
    RETURN_IF_ERROR(AppendOp(L, session, -1, handle.get()));
    lua_settop(L, ops);
  }
  PushObject<DatasetObject>(L, std::move(handle));
  return 1;
}

void PushFieldValue(lua_State* L, const data::FieldValue& value) {
  if (const auto* b = std::get_if<bool>(&value)) {
    lua_pushboolean(L, *b);
  } else if (const auto* i = std::get_if<int64_t>(&value)) {
    lua_pushnumber(L, static_cast<double>(*i));
  } else if (const auto* d = std::get_if<double>(&value)) {
    lua_pushnumber(L, *d);
  } else if (const auto* s = std::get_if<std::string>(&value)) {
    PushString(L, *s);
  } else if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
    PushStrings(L, *list);
  } else if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
    lua_createtable(L, static_cast<int>(numbers->size()), 0);
    for (size_t i = 0; i < numbers->size(); ++i) {
      lua_pushnumber(L, (*numbers)[i]);
      lua_rawseti(L, -2, static_cast<int>(i) + 1);
    }
  } else {
    lua_pushnil(L);
  }
}

// A field as mslua.args describes one.
void PushField(lua_State* L, const data::FieldDef& field) {
  static constexpr const char* kKinds[] = {"boolean",        "integer",          "number",         "string",
                                           "number|numbers", "integer|integers", "strings",        "string|strings",
                                           "table",          "table|tensor",     "function|string"};  // by FieldType
  lua_newtable(L);
  PushString(L, field.name);
  lua_rawseti(L, -2, 1);
  PushString(L, kKinds[static_cast<int>(field.type)]);
  lua_rawseti(L, -2, 2);
  PushFieldValue(L, field.fallback);
  lua_rawseti(L, -2, 3);
  SetLimits(L, field.limits);
  for (const auto& [key, on] : {std::make_pair("required", field.required), std::make_pair("path", field.path)}) {
    lua_pushboolean(L, on);
    lua_setfield(L, -2, key);
  }
  for (const auto& [key, text] : {std::make_pair("doc", &field.doc), std::make_pair("unit", &field.unit)}) {
    if (text->empty()) continue;
    PushString(L, *text);
    lua_setfield(L, -2, key);
  }
  if (field.choices.empty()) return;
  PushStrings(L, field.choices);
  lua_setfield(L, -2, "choices");
}

// Pushes a table with these texts and the fields.
void PushDeclaration(lua_State* L, const std::string& kind, const std::string& class_name, const std::string& doc,
                     const std::vector<data::FieldDef>& fields) {
  lua_newtable(L);
  for (const auto& [key, text] :
       {std::make_pair("kind", &kind), std::make_pair("class", &class_name), std::make_pair("doc", &doc)}) {
    PushString(L, *text);
    lua_setfield(L, -2, key);
  }
  lua_newtable(L);
  int n = 0;
  for (const data::FieldDef& field : fields) {
    PushField(L, field);
    lua_rawseti(L, -2, ++n);
  }
  lua_setfield(L, -2, "fields");
}

// core.sources()
StatusOr<int> ListSources(lua_State* L, Session&) {
  lua_newtable(L);
  int n = 0;
  for (const data::SourceDef& def : data::Sources()) {
    PushDeclaration(L, def.kind, def.class_name, def.doc, def.fields);
    lua_pushboolean(L, def.pictures);
    lua_setfield(L, -2, "pictures");
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

// core.vision_transforms()
StatusOr<int> ListVisionTransforms(lua_State* L, Session&) {
  lua_newtable(L);
  int n = 0;
  for (const data::VisionDef& def : data::VisionTransforms()) {
    PushDeclaration(L, def.kind, def.class_name, def.doc, def.fields);
    lua_pushboolean(L, def.draws > 0);
    lua_setfield(L, -2, "random");
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

// core.random_numbers(): how often random tensors were asked for without a stream of their own.
StatusOr<int> CountRandom(lua_State* L, Session& session) {
  lua_pushnumber(L, static_cast<double>(session.random_tensors));
  return 1;
}

// core.number_random(n): random tensors without a stream of their own count from n on.
StatusOr<int> NumberRandom(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const int64_t n, ReadInt(L, 1, "number_random: n"));
  session.random_tensors = static_cast<uint64_t>(n);
  return 0;
}

// core.set_feed(feeds, feed)
StatusOr<int> SetFeed(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const int64_t feeds, ReadInt(L, 1, "set_feed: feeds"));
  ASSIGN_OR_RETURN(const int64_t feed, ReadInt(L, 2, "set_feed: feed"));
  if (feed < 0 || feed >= feeds)
    return absl::InvalidArgumentError(absl::StrCat("set_feed: there is no feed ", feed, " of ", feeds));
  session.feeds = feeds;
  session.feed = feed;
  return 0;
}

// ------------------------------------------------------------------------------------------------- methods

StatusOr<DatasetObject> Self(lua_State* L) {
  const auto* d = ToObject<DatasetObject>(L, 1);
  if (d == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("expected a Dataset before the colon, got ", Describe(L, 1)));
  return *d;
}

StatusOr<int> DatasetSize(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const DatasetObject d, Self(L));
  ASSIGN_OR_RETURN(const auto pipeline, d->Open(session));
  lua_pushnumber(L, static_cast<double>(pipeline->size()));
  return 1;
}

StatusOr<int> FullBatches(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const DatasetObject d, Self(L));
  ASSIGN_OR_RETURN(const auto pipeline, d->Open(session));
  lua_pushboolean(L, pipeline->full_batches());
  return 1;
}

StatusOr<int> BatchSize(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const DatasetObject d, Self(L));
  if (d->batch == 0)
    lua_pushnil(L);
  else
    lua_pushnumber(L, static_cast<double>(d->batch));
  return 1;
}

void PushColumns(lua_State* L, const std::vector<data::Column>& columns) {
  lua_newtable(L);
  int n = 0;
  for (const data::Column& c : columns) {
    lua_createtable(L, 0, 3);
    PushString(L, c.name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, LongName(c.type.dtype));
    lua_setfield(L, -2, "dtype");
    PushInts(L, c.type.shape);
    lua_setfield(L, -2, "shape");
    lua_rawseti(L, -2, ++n);
  }
}

StatusOr<int> Schema(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const DatasetObject d, Self(L));
  ASSIGN_OR_RETURN(const auto pipeline, d->Open(session));
  PushColumns(L, pipeline->schema());
  return 1;
}

// shapes(): the columns of each shape of a batch, as schema() has those of the first, and its share of the batches.
StatusOr<int> Shapes(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const DatasetObject d, Self(L));
  ASSIGN_OR_RETURN(const auto pipeline, d->Open(session));
  lua_newtable(L);
  for (int64_t s = 0; s < pipeline->shapes(); ++s) {
    lua_newtable(L);
    PushColumns(L, pipeline->schema(s));
    lua_setfield(L, -2, "columns");
    lua_pushnumber(L, pipeline->share(s));
    lua_setfield(L, -2, "share");
    lua_rawseti(L, -2, static_cast<int>(s) + 1);
  }
  return 1;
}

struct Iterator {
  std::unique_ptr<data::Loader> loader;
  int64_t epochs = 1;
  bool batched = false;
  int64_t kept = 0;  // bytes of batches since the last collection
};

// A column of so many bytes becomes a tensor as it lies; a smaller one is copied to memory that others use again.
constexpr int64_t kKeptBytes = 64 << 10;

}  // namespace

template <>
struct KindName<std::shared_ptr<Iterator>> {
  static constexpr const char* value = "DatasetIterator";
};

namespace {

// What is damaged ends a program with the exit code of data.
Status OfData(const Status& read) { return absl::IsDataLoss(read) ? WithExitCode(read, kExitData) : read; }

StatusOr<int> NextBatch(lua_State* L, Session& session) {
  Iterator& it = **static_cast<std::shared_ptr<Iterator>*>(lua_touserdata(L, lua_upvalueindex(1)));
  data::Batch batch;
  while (it.epochs > 0) {
    const auto more = it.loader->Next(&batch);
    RETURN_IF_ERROR(OfData(more.status()));
    if (!*more) {
      --it.epochs;
      continue;
    }
    int64_t kept = 0;
    for (size_t k = 0; k < batch.columns.size(); ++k) {
      TensorType type = batch.columns[k].type;
      // The tail of drop_remainder = false is as long as it is.
      if (it.batched) type.shape[0] = batch.valid;
      if (batch.columns[k].type.bytes() >= kKeptBytes) {
        kept += batch.columns[k].type.bytes();
        PushObject<Tensor>(L, Tensor{type, it.loader->Keep(k)});
        continue;
      }
      ASSIGN_OR_RETURN(Tensor t, NewTensor(session.allocator(), type));
      std::memcpy(t.data.get(), batch.columns[k].data, static_cast<size_t>(type.bytes()));
      PushObject<Tensor>(L, std::move(t));
    }
    it.kept += kept;
    // Lua does not know how large its tensors are.
    if (it.kept >= data::Loader::kSpareBytes) {
      it.kept = 0;
      lua_gc(L, LUA_GCCOLLECT, 0);
    }
    return static_cast<int>(batch.columns.size());
  }
  lua_pushnil(L);
  return 1;
}

// row(i): the columns of sample i, from 1, of a dataset that is `ragged`, whatever ranks share; each in its own shape.
StatusOr<int> ReadRow(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const DatasetObject d, Self(L));
  ASSIGN_OR_RETURN(const int64_t i, ReadInt(L, 2, "row"));
  ASSIGN_OR_RETURN(const auto pipeline, d->OpenWhole(session));
  if (pipeline->batched() || i < 1 || i > pipeline->size())
    return absl::InvalidArgumentError(absl::StrCat("row ", i, " of a dataset of ", pipeline->size()));
  if (d->reading == nullptr) {
    d->reading = std::make_shared<SampleReading>();
    pipeline->MakeEpoch(0, &d->reading->epoch);
  }
  std::vector<data::RawColumn> row(pipeline->schema().size());
  RETURN_IF_ERROR(OfData(pipeline->ReadRow(d->reading->epoch, i - 1, &d->reading->scratch, absl::MakeSpan(row))));
  if (!lua_checkstack(L, static_cast<int>(row.size()) + 8)) return absl::ResourceExhaustedError("Lua's stack is full");
  for (const data::RawColumn& column : row) {
    ASSIGN_OR_RETURN(Tensor t, NewTensor(session.allocator(), column.type));
    std::memcpy(t.data.get(), column.data, static_cast<size_t>(column.type.bytes()));
    PushObject<Tensor>(L, std::move(t));
  }
  return static_cast<int>(row.size());
}

// place(i): where the reader found sample i, from 1, of a dataset whose order is not shuffled: "people.csv:3".
StatusOr<int> PlaceOfSample(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const DatasetObject d, Self(L));
  ASSIGN_OR_RETURN(const int64_t i, ReadInt(L, 2, "place"));
  ASSIGN_OR_RETURN(const auto pipeline, d->OpenWhole(session));
  if (d->reading == nullptr) {
    d->reading = std::make_shared<SampleReading>();
    pipeline->MakeEpoch(0, &d->reading->epoch);
  }
  if (i < 1 || (i - 1) / pipeline->rows() >= pipeline->size())
    return absl::InvalidArgumentError(absl::StrCat("place: no sample ", i));
  PushString(L, pipeline->SampleAt(d->reading->epoch, (i - 1) / pipeline->rows(), (i - 1) % pipeline->rows()));
  return 1;
}

// class_names(): the names of labels 0, 1, ... as the source knows them; nil where it knows none.
StatusOr<int> ClassNames(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const DatasetObject d, Self(L));
  ASSIGN_OR_RETURN(const auto pipeline, d->OpenWhole(session));
  const std::vector<std::string> names = pipeline->class_names();
  names.empty() ? lua_pushnil(L) : PushStrings(L, names);
  return 1;
}

// length(): samples, whatever ranks share; nil where only running the source tells.
StatusOr<int> CountSamples(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const DatasetObject d, Self(L));
  const auto generator = d->description.source().generator();
  if (generator != nullptr && !generator->random_access()) {
    lua_pushnil(L);
    return 1;
  }
  ASSIGN_OR_RETURN(const auto pipeline, d->OpenWhole(session));
  lua_pushnumber(L, static_cast<double>(pipeline->size()));
  return 1;
}

// iterator(epochs = 1, first = 0): a function that gives the columns of each batch; `first` is the number of the first
// epoch, from 0.
StatusOr<int> MakeIterator(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const DatasetObject d, Self(L));
  ASSIGN_OR_RETURN(const auto pipeline, d->Open(session));
  auto it = std::make_shared<Iterator>();
  if (!lua_isnoneornil(L, 2)) {
    ASSIGN_OR_RETURN(it->epochs, ReadInt(L, 2, "iterator: epochs"));
  }
  data::Position begin;
  if (!lua_isnoneornil(L, 3)) {
    ASSIGN_OR_RETURN(begin.epoch, ReadInt(L, 3, "iterator: first epoch"));
  }
  it->batched = pipeline->batched();
  it->loader = std::make_unique<data::Loader>(pipeline, d->ForLoader());
  if (begin.epoch > 0) RETURN_IF_ERROR(it->loader->Seek(begin));
  PushObject<std::shared_ptr<Iterator>>(L, std::move(it));
  lua_pushcclosure(L, Entry<NextBatch>, 1);
  return 1;
}

}  // namespace

StatusOr<std::shared_ptr<const data::Pipeline>> DatasetHandle::Open(Session& session) {
  const uint64_t wanted = seed >= 0 ? static_cast<uint64_t>(seed) : session.state().seed;
  if (pipeline != nullptr && pipeline->seed() != wanted) {
    pipeline = pipeline->WithSeed(wanted);
    reading = nullptr;
  }
  if (pipeline != nullptr && feeds == session.feeds) return pipeline;
  data::FeedOptions feed;
  feed.ragged = ragged;
  feed.feeds = feeds = session.feeds;
  feed.feed = session.feed;
  feed.seed = wanted;
  auto opened = data::Pipeline::Open(description, feed);
  if (!opened.ok()) {
    // Files that are missing or bad, against a chain that makes no sense.
    const Status located = AtLine(opened.status(), &made_at);
    return absl::IsInvalidArgument(located) ? located : WithExitCode(located, kExitData);
  }
  pipeline = *std::move(opened);
  for (const std::string& notice : pipeline->notices()) std::fprintf(stderr, "mslua: note: %s\n", notice.c_str());
  return pipeline;
}

StatusOr<std::shared_ptr<const data::Pipeline>> DatasetHandle::OpenWhole(Session& session) {
  const auto feeds = std::exchange(session.feeds, 1), feed = std::exchange(session.feed, 0);
  auto opened = Open(session);
  session.feeds = feeds;
  session.feed = feed;
  return opened;
}

bool DatasetHandle::Divided() const {
  const auto generator = description.source().generator();
  return feeds > 1 && description.sharding().num_shards == 0 && (generator == nullptr || generator->random_access());
}

data::LoaderOptions DatasetHandle::ForLoader() const {
  constexpr int kMostByDefault = 8;
  data::LoaderOptions options;
  options.workers = workers > 0 ? static_cast<int>(workers) : std::clamp(ComputeThreads() - 1, 1, kMostByDefault);
  return options;
}

bool DatasetHandle::Repeated() const { return feeds > 1 && description.sharding().num_shards == 0 && !Divided(); }

void OpenDatasets(lua_State* L) {
  NewKind<std::shared_ptr<Iterator>>(L);
  lua_pop(L, 1);
  NewKind<DatasetObject>(L);
  lua_newtable(L);
  SetFunctions(L, {{"size", Entry<DatasetSize>},
                   {"batch_size", Entry<BatchSize>},
                   {"full_batches", Entry<FullBatches>},
                   {"schema", Entry<Schema>},
                   {"shapes", Entry<Shapes>},
                   {"place", Entry<PlaceOfSample>},
                   {"row", Entry<ReadRow>},
                   {"class_names", Entry<ClassNames>},
                   {"length", Entry<CountSamples>},
                   {"iterator", Entry<MakeIterator>}});
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  SetFunctions(L, {{"dataset", Entry<MakeDataset>},
                   {"sources", Entry<ListSources>},
                   {"vision_transforms", Entry<ListVisionTransforms>},
                   {"set_feed", Entry<SetFeed>},
                   {"random_numbers", Entry<CountRandom>},
                   {"number_random", Entry<NumberRandom>}});
}

}  // namespace mslua
