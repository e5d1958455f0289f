// Optimizers in Lua: their definitions for the library's classes, and the settings of a training step.
#pragma once

#include <memory>
#include <string>

#include "core/optim/declare/update.h"
#include "core/train/optimizer_history.h"
#include "lua/session.h"
#include "luajit-2.1/lua.hpp"

namespace mslua {

// Reads the table at `index`: kind, the settings of that optimizer, weight_decay and wrapper; groups is the caller's.
// A setting that is left out has its default. Errors begin with "optimizer: ".
Status ReadOptimizerRule(lua_State* L, int index, OptimizerRule* rule);

// The field `history` of the table at `index`, from core.optimizer_history; nil: of an optimizer that has done nothing.
StatusOr<std::shared_ptr<OptimizerHistory>> FieldHistory(lua_State* L, int index, const std::string& what);

// Entries of the module: core.optimizers, core.optimizer_history.
void OpenOptimizers(lua_State* L);

}  // namespace mslua
