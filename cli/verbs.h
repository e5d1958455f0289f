// The verbs of mslua: one table that parsing, help and completion read. A verb is a file in verbs/.
#pragma once

#include <string>
#include <vector>

#include "cli/verb.h"

namespace mslua::cli {

// Every verb, in the order of the help. The list is generated from the files of verbs/.
const std::vector<VerbDef>& Verbs();
// Null when there is no such verb, flag or action.
const VerbDef* FindVerb(const std::string& name);
const FlagDef* FindFlag(const VerbDef& verb, const std::string& name);
const ActionDef* FindAction(const VerbDef& verb, const std::string& name);

// The page of `mslua help`: the verbs by group.
std::string OverviewText();
// The page of `mslua help VERB`: usage, flags, three examples, under 40 lines.
std::string HelpText(const VerbDef& verb);

}  // namespace mslua::cli
