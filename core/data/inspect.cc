#include "core/data/inspect.h"

#include <functional>

#include "absl/strings/str_cat.h"
#include "core/data/file.h"

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
      const size_t label = static_cast<size_t>(*static_cast<const int32_t*>(row[last].data));
      if (part->histogram.size() <= label) part->histogram.resize(label + 1);
      ++part->histogram[label];
    }
  }
}

struct Format {
  const char* name;
  std::vector<Usage> parts;
  std::function<StatusOr<std::unique_ptr<Reader>>(Usage)> open;
};

}  // namespace

StatusOr<DataReport> Inspect(const std::string& path, bool verify) {
  const std::vector<Usage> both{Usage::kTrain, Usage::kTest};
  std::vector<Format> formats;
  if (IsFolder(path)) {
    formats.push_back({"cifar10", both, [&](Usage usage) { return OpenCifar10({path, usage}); }});
    formats.push_back({"cifar100", both, [&](Usage usage) { return OpenCifar100({path, usage}); }});
    formats.push_back({"mnist", both, [&](Usage usage) { return OpenMnist({path, usage}); }});
  }
  if (IsFile(path) || IsFile(path + "/input.txt")) {
    formats.push_back({"text", both, [&](Usage usage) {
                         Text text;
                         text.path = path;
                         text.block = 1;
                         text.usage = usage;
                         return OpenText(text);
                       }});
  }
  if (IsFolder(path)) {
    formats.push_back({"image folder", {Usage::kAll}, [&](Usage) { return OpenImageFolder({path}); }});
  }
  static constexpr const char* kPartNames[] = {"train", "test", "all"};  // by Usage
  for (const Format& format : formats) {
    DataReport report;
    report.format = format.name;
    for (Usage usage : format.parts) {
      StatusOr<std::unique_ptr<Reader>> reader = format.open(usage);
      if (absl::IsNotFound(reader.status())) continue;  // this part is absent
      if (!reader.ok()) {
        AddProblem(reader.status(), &report);
        continue;
      }
      PartReport part;
      part.name = kPartNames[static_cast<int>(usage)];
      part.samples = (*reader)->size();
      part.columns = (*reader)->columns();
      report.notices.insert(report.notices.end(), (*reader)->notices().begin(), (*reader)->notices().end());
      if (verify) Verify(**reader, &part, &report);
      report.parts.push_back(std::move(part));
    }
    if (!report.parts.empty() || !report.problems.empty()) return report;
  }
  return absl::NotFoundError(absl::StrCat("'", path,
                                          "' is no dataset: expected the files of CIFAR-10, CIFAR-100 or MNIST, a text "
                                          "(file, or folder with input.txt) or a folder of image folders"));
}

}  // namespace mslua::data
