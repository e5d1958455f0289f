#include "core/data/inspect.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/data/source.h"

namespace mslua::data {
namespace {

constexpr size_t kMaxProblems = 10;

void AddProblem(const Status& status, DataReport* report) {
  if (report->problems.size() < kMaxProblems) {
    report->problems.emplace_back(status.message());
  } else {
    report->more_problems = true;
  }
}

// Reads every sample; counts the labels.
void Verify(const Reader& reader, PartReport* part, DataReport* report) {
  const size_t last = reader.columns().size() - 1;
  const TensorType& type = reader.columns()[last].type;
  const bool labels = type.dtype == DType::kI32 && type.rank() == 0;
  ReadBuffers buffers;
  std::vector<RawColumn> row(reader.columns().size());
  for (int64_t i = 0; i < reader.size(); ++i) {
    const Status status = reader.Read(i, &buffers, absl::MakeSpan(row));
    if (!status.ok()) {
      AddProblem(status, report);
    } else if (labels) {
      constexpr int32_t kMostClasses = 1 << 20;  // larger labels are counted in no class
      const int32_t label = *static_cast<const int32_t*>(row[last].data);
      if (label < 0) {
        AddProblem(absl::DataLossError(absl::StrCat(reader.Where(i), ": the label is ", label, ", expected 0 or more")),
                   report);
      } else if (label < kMostClasses) {
        if (part->histogram.size() <= static_cast<size_t>(label))
          part->histogram.resize(static_cast<size_t>(label) + 1);
        ++part->histogram[static_cast<size_t>(label)];
      }
    }
  }
}

// What a source of this kind finds at the path; no part and no problem: nothing.
DataReport InspectAs(const SourceDef& def, const std::string& path, bool verify) {
  DataReport report;
  report.kind = def.kind;
  std::vector<std::string> usages{"all"};
  if (def.Find("usage") != nullptr) usages = {"train", "test"};
  for (const std::string& usage : usages) {
    FieldMap fields = def.inspect;
    if (def.inspect_at != nullptr) fields.merge(def.inspect_at(path));
    fields[def.PathField()->name] = path;
    if (def.Find("usage") != nullptr) fields["usage"] = usage;
    const StatusOr<std::unique_ptr<Reader>> reader = OpenSource(Source(def.kind, std::move(fields)));
    if (absl::IsNotFound(reader.status())) continue;  // this part is absent
    if (!reader.ok()) {
      AddProblem(reader.status(), &report);
      continue;
    }
    PartReport part;
    part.name = usage;
    part.samples = (*reader)->size();
    part.columns = (*reader)->columns();
    report.notices.insert(report.notices.end(), (*reader)->notices().begin(), (*reader)->notices().end());
    if (verify) Verify(**reader, &part, &report);
    report.parts.push_back(std::move(part));
  }
  return report;
}

}  // namespace

StatusOr<DataReport> Inspect(const std::string& path, bool verify, const std::string& wanted) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return absl::NotFoundError(
        absl::StrCat("'", path, "' is no dataset: ", std::strerror(error ? error.value() : ENOENT)));
  std::vector<const SourceDef*> defs;
  for (const SourceDef& def : Sources()) {
    if (def.fits != nullptr) defs.push_back(&def);
  }
  std::stable_sort(defs.begin(), defs.end(), [&](const SourceDef* a, const SourceDef* b) {
    return std::make_pair(a->kind != wanted, a->order) < std::make_pair(b->kind != wanted, b->order);
  });
  std::vector<std::string> expected;
  for (const SourceDef* def : defs) {
    expected.push_back(def->expects);
    if (!def->fits(path)) continue;
    DataReport report = InspectAs(*def, path, verify);
    if (!report.parts.empty() || !report.problems.empty()) return report;
  }
  return absl::NotFoundError(absl::StrCat("'", path, "' is no dataset: expected ", JoinOr(expected)));
}

std::string FormatName(const std::string& kind) { return absl::StrReplaceAll(kind, {{"_", " "}}); }

}  // namespace mslua::data
