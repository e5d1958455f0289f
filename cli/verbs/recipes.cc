// mslua recipes
#include "cli/common_flags.h"
#include "cli/verbs/all.h"

namespace mslua::cli {

VerbDef RecipesVerb() {
  VerbDef verb;
  verb.name = "recipes";
  verb.usage = "ACTION [argument ...] [flags]";
  verb.doc = "the recipe library: list, show, copy, check";
  verb.overrides = true;
  verb.flags = {Json().Of({"ls"})};
  verb.actions = {{"ls", "", 0, 0},
                  {"show", "RECIPE [key=value ...]", 1, 1},
                  {"copy", "RECIPE PATH", 2, 2},
                  {"check", "RECIPE [key=value ...]", 1, 1}};
  verb.examples = {"mslua recipes ls", "mslua recipes show quickstart", "mslua recipes check my_recipe.lua"};
  return verb;
}

}  // namespace mslua::cli
