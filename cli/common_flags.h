// Flags that more than one verb takes: one definition, one meaning, one default.
#pragma once

#include "cli/flags.h"

namespace mslua::cli {

FlagDef Backend();
FlagDef Checkpoint();
FlagDef Commands();
FlagDef Device();
FlagDef Elastic();
FlagDef HangTimeout();
FlagDef HeartbeatTimeout();
FlagDef InsecureNetwork();
FlagDef Interface();
FlagDef Json();
FlagDef LogRanks();
FlagDef MaxSteps();
FlagDef Preset();
FlagDef Rank();
FlagDef Ranks();
FlagDef Seed();
FlagDef Tls();
FlagDef Traceback();
// The flags of verbs that run a recipe on ranks, with `own` among them.
std::vector<FlagDef> RecipeFlags(std::vector<FlagDef> own);
// The same flag as Ranks, in verbs that compile for N ranks and start none.
FlagDef RanksWithoutThem();
// Of a verb that draws tokens from a network: the weights, the flags of `own`, how tokens are drawn, and what all of
// these verbs take.
std::vector<FlagDef> SamplingFlags(std::vector<FlagDef> own);

}  // namespace mslua::cli
