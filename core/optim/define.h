// For the files of this folder: each defines one optimizer. The build finds the file by its name
// (docs/howto/add_an_optimizer.md).
#pragma once

#include "core/graph/builder.h"
#include "core/optim/declare/optimizer_def.h"

// core/optim/adam.cc:  MSLUA_OPTIMIZER(adam) { OptimizerDef def("adam", "Adam"); ... return def; }
#define MSLUA_OPTIMIZER(name) OptimizerDef Optimizer_##name()
