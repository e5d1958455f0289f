#include "lua/summary_lua.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"
#include "core/train/progress.h"
#include "core/train/summaries.h"
#include "lua/image_lua.h"
#include "lua/session.h"
#include "lua/tensor_lua.h"

namespace mslua {
namespace {

// What this rank records; null: nothing. FailedPrecondition where no training runs.
StatusOr<Summaries*> Running(const Session& session, const char* what) {
  if (session.training_progress != nullptr) return session.training_progress->summaries;
  return absl::FailedPreconditionError(
      absl::StrCat("summary.", what, ": no training runs here: call it in a callback of a training"));
}

// core.summary_problem(name, scalar): what is wrong with a name, or "".
StatusOr<int> NameProblem(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string name, ReadString(L, 1, "summary: name"));
  PushString(L, Summaries::NameProblem(name, lua_toboolean(L, 2) != 0));
  return 1;
}

// core.summary_scalar(name, value, step); a step below 0 stands for the training's, here and below.
StatusOr<int> AddScalar(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const std::string name, ReadString(L, 1, "summary.scalar: name"));
  ASSIGN_OR_RETURN(const double value, ReadNumber(L, 2, "summary.scalar: value"));
  ASSIGN_OR_RETURN(const int64_t step, ReadInt(L, 3, "summary.scalar: step"));
  ASSIGN_OR_RETURN(Summaries* const summaries, Running(session, "scalar"));
  if (summaries != nullptr) summaries->Scalar(name, step, value);
  return 0;
}

// core.summary_histogram(name, tensor, step)
StatusOr<int> AddHistogram(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const std::string name, ReadString(L, 1, "summary.histogram: name"));
  ASSIGN_OR_RETURN(const Tensor tensor, ReadTensor(session, L, 2, absl::nullopt, "summary.histogram: value"));
  ASSIGN_OR_RETURN(const int64_t step, ReadInt(L, 3, "summary.histogram: step"));
  ASSIGN_OR_RETURN(Summaries* const summaries, Running(session, "histogram"));
  if (tensor.type.elements() == 0)
    return absl::InvalidArgumentError(
        absl::StrCat("summary.histogram: ", name, ": expected values, got ", ToString(tensor.type)));
  if (summaries != nullptr) summaries->AddHistogram(name, step, MakeHistogram(tensor.view()));
  return 0;
}

// core.summary_text(name, text, step)
StatusOr<int> AddText(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const std::string name, ReadString(L, 1, "summary.text: name"));
  ASSIGN_OR_RETURN(const std::string text, ReadString(L, 2, "summary.text: text"));
  ASSIGN_OR_RETURN(const int64_t step, ReadInt(L, 3, "summary.text: step"));
  ASSIGN_OR_RETURN(Summaries* const summaries, Running(session, "text"));
  if (summaries != nullptr) summaries->Text(name, step, text);
  return 0;
}

// core.summary_image(name, tensor, step, {low =, high =, columns =, padding =})
StatusOr<int> AddImage(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const std::string name, ReadString(L, 1, "summary.image: name"));
  ASSIGN_OR_RETURN(const int64_t step, ReadInt(L, 3, "summary.image: step"));
  ASSIGN_OR_RETURN(Summaries* const summaries, Running(session, "image"));
  ASSIGN_OR_RETURN(const data::Picture picture, ReadPicture(L, session, 2, 4, "summary.image"));
  if (summaries != nullptr) RETURN_IF_ERROR(WithExitCode(summaries->Image(name, step, picture), kExitStorage));
  return 0;
}

}  // namespace

void OpenSummaries(lua_State* L) {
  SetFunctions(L, {{"summary_problem", Entry<NameProblem>},
                   {"summary_scalar", Entry<AddScalar>},
                   {"summary_histogram", Entry<AddHistogram>},
                   {"summary_text", Entry<AddText>},
                   {"summary_image", Entry<AddImage>}});
}

}  // namespace mslua
