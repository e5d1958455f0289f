// For the files of this folder: each defines one verb. The build finds the file by its name
// (CONTRIBUTING.md).
#pragma once

#include "cli/front.h"
#include "cli/verb.h"

// verbs/top.cc:  MSLUA_VERB(top) { VerbDef verb; verb.name = "top"; ... return verb; }
#define MSLUA_VERB(name) VerbDef Verb_##name()
