// One function for each verb; the file of a verb defines its flags and its function.
#pragma once

#include "cli/verbs.h"

namespace mslua::cli {

inline constexpr int kUnlimited = 1 << 20;

VerbDef TrainVerb();
VerbDef EvalVerb();
VerbDef RunVerb();
VerbDef ReplVerb();
VerbDef GraphVerb();
VerbDef DataVerb();
VerbDef RecipesVerb();
VerbDef VerifyVerb();
VerbDef ProfVerb();
VerbDef CkptVerb();
VerbDef DoctorVerb();
VerbDef VersionVerb();
VerbDef CompletionVerb();
VerbDef PlanVerb();
VerbDef SchedVerb();
VerbDef PsVerb();
VerbDef AttachVerb();
VerbDef StopVerb();
VerbDef LogsVerb();
VerbDef DiagVerb();
VerbDef PlotVerb();
VerbDef TopVerb();
VerbDef CertsVerb();
VerbDef JobVerb();

}  // namespace mslua::cli
