// Criteo's click logs: a line a sample, 40 fields between tabs and no header: the click (0 or 1), 13 integers and 26
// categories of 8 hexadecimal digits. An integer or a category may be empty.
#include <cmath>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "core/base/input_file.h"
#include "core/data/pieces.h"
#include "core/data/sources/define.h"
#include "core/data/stand_in.h"
#include "core/data/table.h"

namespace mslua::data {
namespace {

constexpr int kNumbers = 13, kCategories = 26, kFields = 1 + kNumbers + kCategories;
constexpr int64_t kMaxLine = int64_t{1} << 20;

std::vector<std::string> Names() {
  std::vector<std::string> names{"click"};
  for (int k = 1; k <= kNumbers; ++k) names.push_back(absl::StrCat("i", k));
  for (int k = 1; k <= kCategories; ++k) names.push_back(absl::StrCat("c", k));
  return names;
}

class CriteoFile : public TableFile {
 public:
  explicit CriteoFile(Pieces pieces) : pieces_(std::move(pieces)) {}

  StatusOr<std::vector<std::string>> Names(const std::vector<std::string>&) override { return data::Names(); }

  StatusOr<bool> Next(std::vector<absl::string_view>* fields) override {
    const char* end = nullptr;
    while (true) {
      end = pieces_.Find('\n');
      if (end != nullptr || pieces_.at_end()) break;
      if (pieces_.size() > kMaxLine)
        return absl::DataLossError(absl::StrCat(pieces_.path(), ":", line_ + 1, ": a line of more than 1 MiB"));
      RETURN_IF_ERROR(pieces_.Fill());
    }
    if (end == nullptr && pieces_.size() == 0) return false;
    const char* const stop = end == nullptr ? pieces_.end() : end;
    ++line_;
    fields->clear();
    for (const char* p = pieces_.begin();; ++p) {
      const char* tab = static_cast<const char*>(std::memchr(p, '\t', static_cast<size_t>(stop - p)));
      if (tab == nullptr) tab = stop;
      fields->emplace_back(p, static_cast<size_t>(tab - p));
      p = tab;
      if (p == stop) break;
    }
    if (absl::EndsWith(fields->back(), "\r")) fields->back().remove_suffix(1);
    pieces_.UseUntil(end == nullptr ? stop : end + 1);
    if (fields->size() == kFields) return true;
    return absl::DataLossError(absl::StrCat(pieces_.path(), ":", line_, ": ", fields->size(),
                                            fields->size() == 1 ? " column" : " columns", ", expected ", kFields,
                                            " between tabs: the click, 13 numbers and 26 categories"));
  }

  int64_t line() const override { return line_; }

 private:
  Pieces pieces_;
  int64_t line_ = 0;
};

// The files to read: those given, or of a folder those of the usage.
StatusOr<std::vector<std::string>> FilesOf(const Fields& fields) {
  const std::vector<std::string> given = fields.Strings("dataset_files");
  const Usage usage = UsageOf(fields);
  if (given.size() != 1 || !IsFolder(given[0])) {
    if (usage == Usage::kTrain) return given;
    return absl::NotFoundError(
        "CriteoDataset: usage is for a folder with train.txt and test.txt; of files leave it out");
  }
  std::vector<std::string> files;
  if (usage != Usage::kTest) files.push_back(given[0] + "/train.txt");
  if (usage != Usage::kTrain) files.push_back(given[0] + "/test.txt");
  return files;
}

StatusOr<std::unique_ptr<Reader>> Open(const Fields& fields) {
  ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesOf(fields));
  std::map<std::string, std::string> types{{"click", "int"}}, missing;
  for (int k = 1; k <= kNumbers; ++k) types[absl::StrCat("i", k)] = "float", missing[absl::StrCat("i", k)] = "0";
  for (int k = 1; k <= kCategories; ++k) types[absl::StrCat("c", k)] = absl::StrCat("hash(", fields.Int("hash"), ")");
  ASSIGN_OR_RETURN(const Fields table, CheckFields("CriteoDataset", TableFields(""),
                                                   {{"dataset_files", files},
                                                    {"columns", types},
                                                    {"missing", missing},
                                                    {"label", std::string("click")},
                                                    {"pack", true}}));
  return OpenTable(
      "CriteoDataset", table,
      [](const std::string& path, const std::vector<std::string>&) -> StatusOr<std::unique_ptr<TableFile>> {
        ASSIGN_OR_RETURN(Pieces pieces, Pieces::Open(path));
        return std::unique_ptr<TableFile>(std::make_unique<CriteoFile>(std::move(pieces)));
      });
}

// Whether the first line has the format's tabs.
bool Fits(const std::string& path) {
  if (IsFolder(path)) return Fits(path + "/train.txt");
  if (!IsFile(path) || !(absl::EndsWith(path, ".txt") || absl::EndsWith(path, ".tsv"))) return false;
  const auto file = InputFile::Open(path);
  if (!file.ok()) return false;
  std::string start(static_cast<size_t>(std::min<int64_t>((*file)->size(), 4096)), '\0');
  if (!(*file)->Read(0, static_cast<int64_t>(start.size()), &start[0]).ok()) return false;
  start.resize(std::min(start.size(), start.find('\n')));
  return std::count(start.begin(), start.end(), '\t') == kFields - 1;
}

// ---- The stand-in --------------------------------------------------------------------------------------------------

// Mixed as SplitMix64 does.
uint64_t Mixed(uint64_t h) {
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
  return h ^ (h >> 31);
}

// A category's effect on the click, between -1 and 1.
double EffectOf(int column, int64_t value) {
  return static_cast<double>(Mixed(static_cast<uint64_t>(column) << 40 | static_cast<uint64_t>(value)) >> 11) *
             0x1p-52 -
         1;
}

// Categories of the columns have 10 to 100 000 values, of which few are frequent, as those of the logs. The click
// follows from the numbers, from categories and from pairs of them.
void AppendRecord(uint64_t seed, const std::string& part, int64_t i, std::string* out) {
  SampleDraws draws = StandInDraws(seed, part, i);
  std::string text;
  double score = -1.1;
  for (int k = 0; k < kNumbers; ++k) {
    const double u = draws.Uniform(0, 1);
    const auto value = static_cast<int64_t>(std::floor(std::exp(4 * u * (1 + k % 3)) - 1.5));
    const bool empty = draws.Uniform(0, 1) < 0.1;
    text += empty ? "\t" : absl::StrCat("\t", value);
    if (!empty) score += (k % 2 == 0 ? 0.9 : -0.9) * (u - 0.5);
  }
  int64_t before = 0;
  for (int k = 0; k < kCategories; ++k) {
    const double values = std::pow(10, 1 + k % 5);
    const auto value = static_cast<int64_t>(std::pow(values, draws.Uniform(0, 1))) - 1;
    const bool empty = k % 7 == 3 && draws.Uniform(0, 1) < 0.2;
    text += empty ? "\t" : absl::StrFormat("\t%08x", Mixed(static_cast<uint64_t>(k) << 32 | value) >> 32);
    if (!empty) score += 0.8 * EffectOf(k, value);
    if (k % 5 == 1) score += 0.9 * EffectOf(kCategories + k, value * 1000 + before % 1000);
    before = value;
  }
  const bool click = draws.Uniform(0, 1) < 1 / (1 + std::exp(-1.5 * score));
  absl::StrAppend(out, click ? "1" : "0", text, "\n");
}

Status Make(const std::string& path, const MakeOptions& options) {
  RETURN_IF_ERROR(PrepareStandIn(path, {"train.txt", "test.txt"}, options));
  if (std::max(options.train, options.test) > 10'000'000)
    return absl::InvalidArgumentError("data make criteo: expected at most 10000000 samples a part");
  for (const bool train : {true, false}) {
    std::string text;
    const std::string part = train ? "make/criteo/train" : "make/criteo/test";
    for (int64_t i = 0; i < (train ? options.train : options.test); ++i) AppendRecord(options.seed, part, i, &text);
    RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(path, train ? "/train.txt" : "/test.txt"), text));
  }
  return absl::OkStatus();
}

}  // namespace

MSLUA_SOURCE(criteo) {
  SourceDef def("criteo", "CriteoDataset");
  def.title = "Criteo's click logs";
  def.doc =
      "Lines of Criteo's click logs (Display Advertising Challenge): numbers float32 [13] (0 where one is empty), "
      "categories int32 [26], each a bucket below `hash` of its own column, click int32 [].";
  def.fields = {PathField("dataset_files",
                          "a file, a list of files that are read one after another, or a folder with train.txt and "
                          "test.txt",
                          FieldType::kPaths),
                UsageField(),
                {"hash", FieldType::kInt, "buckets of each category", int64_t{100000}}};
  def.fields.back().limits = Between(1, 2147483647);
  def.open = Open;
  def.fits = Fits;
  def.expects = "a file of Criteo's click logs, or a folder with train.txt";
  def.order = 1;
  def.make = Make;
  return def;
}

}  // namespace mslua::data
