// What a page shows of a run besides numbers and settings: worst samples, pictures, texts, histograms.
#pragma once

#include <cstddef>

#include "core/json/json.h"
#include "verbs/support/run_record.h"

namespace mslua {

// The worst samples of the newest evaluation, {"step":..,"labels":[..],"samples":[..]} as the run has recorded them, at
// most `bytes` of them; or why there are none.
Json WorstSamplesOf(const std::string& folder, size_t bytes);

// The newest pictures of each name, {"name":..,"step":..,"file":..} with "picture", the file in base64, as far as
// `bytes` reach: those of ms.summary.image, and as "generated samples" what the recipe's `samples` has drawn.
Json PicturesOf(const RunRecord& record, size_t bytes);

// The newest texts of each name, {"name":..,"step":..,"text":..}.
Json TextsOf(const RunRecord& record, size_t bytes);

// By name histograms over the run, oldest first, as they are recorded, with the step.
Json HistogramsOf(const RunRecord& record, size_t bytes);

}  // namespace mslua
