// Samples that a function makes: one of the training's own Lua (core/data/source.h: Generator), or of a file of Lua
// that each thread loads (core/data/sample_code.h).
#include "absl/strings/str_cat.h"
#include "core/data/sources/define.h"

namespace mslua::data {
namespace {

// The samples of code: sample i is what its function gives for i.
class CodeReader : public Reader {
 public:
  CodeReader(std::shared_ptr<const SampleCode> code, std::vector<std::string> names, int64_t length)
      : code_(std::move(code)), names_(std::move(names)) {
    size_ = length;
  }

  // Finds the length and the types.
  Status Start(CodeCalls* calls) {
    ASSIGN_OR_RETURN(const SampleFunction* function, calls->Function(code_));
    if (size_ < 0) size_ = function->length();
    if (size_ < 1)
      return absl::InvalidArgumentError(absl::StrCat(
          code_->name(),
          ": GeneratorDataset: a file needs a length of at least 1: give the argument `length`, or let the "
          "file return { length = N, get = function(i) ... end }"));
    std::vector<TensorView> row;
    RETURN_IF_ERROR(Make(0, calls, &row));
    if (row.size() != names_.size())
      return absl::InvalidArgumentError(absl::StrCat(code_->name(), ": GeneratorDataset: a sample has ", row.size(),
                                                     row.size() == 1 ? " column" : " columns", ", column_names has ",
                                                     names_.size()));
    for (size_t k = 0; k < row.size(); ++k) columns_.push_back({names_[k], row[k].type});
    return absl::OkStatus();
  }

  Status Read(int64_t i, ReadBuffers* buffers, absl::Span<RawColumn> row) const override {
    std::vector<TensorView> made;
    RETURN_IF_ERROR(Make(i, buffers->code, &made));
    bool alike = made.size() == columns_.size();
    for (size_t k = 0; alike && k < made.size(); ++k) {
      const TensorType &type = made[k].type, &first = columns_[k].type;
      alike = type.dtype == first.dtype && type.rank() == first.rank();
      row[k] = RawColumn{made[k].data, type};
    }
    if (alike) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(code_->name(), ": GeneratorDataset: ", Where(i), " is (",
                                                   TypesOf(made), "), sample 1 was of other types"));
  }

  bool runs_code() const override { return true; }
  std::string Where(int64_t i) const override { return absl::StrCat("sample ", i + 1); }

 private:
  Status Make(int64_t i, CodeCalls* calls, std::vector<TensorView>* row) const {
    CodeArguments arguments;
    arguments.index = i;
    // The same in every epoch: sample i is one sample.
    arguments.key = static_cast<uint64_t>(i);
    return calls->Call(code_, std::move(arguments), Where(i), row);
  }

  static std::string TypesOf(const std::vector<TensorView>& row) {
    std::string text;
    for (const TensorView& column : row) absl::StrAppend(&text, text.empty() ? "" : ", ", ToString(column.type));
    return text;
  }

  const std::shared_ptr<const SampleCode> code_;
  const std::vector<std::string> names_;
};

StatusOr<std::unique_ptr<Reader>> Open(const Fields& fields) {
  auto reader = std::make_shared<std::unique_ptr<CodeReader>>(std::make_unique<CodeReader>(
      fields.Code("source"), fields.Strings("column_names"), fields.Has("length") ? fields.Int("length") : -1));
  RETURN_IF_ERROR(CodeCalls::RunWatched([reader](CodeCalls* calls) { return (*reader)->Start(calls); }));
  return std::unique_ptr<Reader>(std::move(*reader));
}

}  // namespace

MSLUA_SOURCE(generator) {
  SourceDef def("generator", "GeneratorDataset");
  def.title = "generator";
  def.doc =
      "Samples that Lua makes: a function that returns an iterator, called each epoch, or, with `length`, "
      "`function(i)` for i from 1. Both give a value for each column: a tensor, a number or a list of numbers. As a "
      "path, `GeneratorDataset(\"numbers.lua\", {\"x\"})`, the file returns function(i), or {length = N, get = "
      "function(i) ... end}, and runs on the threads of num_parallel_workers in Lua states of their own; it gets "
      "`arguments` as `...`.";
  FieldDef source{"source", FieldType::kGenerator, "the function, or the path of a file that returns it"};
  FieldDef names{"column_names", FieldType::kStrings, "names of the columns"};
  FieldDef length{"length", FieldType::kInt, "samples there are; without it the source returns an iterator"};
  source.required = names.required = true;
  length.limits = AtLeast(1);
  def.fields = {source, names, length};
  def.open = Open;
  return def;
}

}  // namespace mslua::data
