#include "train/compare_first_batch.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/exit_code.h"
#include "core/base/hash.h"
#include "core/data/loader.h"
#include "core/train/agreement.h"

namespace mslua {
namespace {

Status Compare(Groups& groups, int64_t feeds, const std::vector<data::Column>& columns, const data::Batch& batch) {
  std::vector<std::string> mine;
  for (const TensorView& column : batch.columns)
    mine.push_back(absl::StrCat(Crc32c(column.data, static_cast<size_t>(column.type.bytes()))));
  ASSIGN_OR_RETURN(const auto all, GatherTexts(groups, absl::StrJoin(mine, " "), "the first batch"));
  for (size_t r = static_cast<size_t>(feeds); r < all.size(); ++r) {
    const std::vector<std::string> a = absl::StrSplit(all[r % feeds], ' '), b = absl::StrSplit(all[r], ' ');
    const size_t c = std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin();
    if (c == a.size()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the first batches of rank ", r % feeds, " and rank ", r, " differ in column '", columns[c].name,
                     "', but both ranks read the same rows: the code that makes the samples may not depend on "
                     "ms.communication.get_rank(), nor on random numbers that ms.set_seed() does not repeat"));
  }
  return absl::OkStatus();
}

}  // namespace

void CompareFirstBatch(Groups& groups, const TrainingData& data, data::Loader* loader) {
  loader->CheckNext([&groups, feeds = data.feeds, pipeline = data.pipeline](const data::Batch& batch) {
    return WithExitCode(Compare(groups, feeds, pipeline->schema(batch.shape), batch), kExitHang);
  });
}

}  // namespace mslua
