#include "repl/help.h"

namespace mslua::repl {

std::string LoopHelp() {
  return "Lua: an expression prints its value (a ; at its end silences it), _ is the last one; local stays\n"
         "  ?name         what a name is: ?nn lists a module, ?nn.Adam says its arguments\n"
         "  Tab           completes names, methods and parameters\n"
         "  .timer on     prints how long each line took; .timer off ends that\n"
         "  Ctrl-C        ends the line, or what runs\n"
         "  .help         this\n"
         "  .quit, Ctrl-D leaves\n";
}

std::string ScopeHelp() {
  return "in scope: recipe, net, dataset, eval_dataset, loss, model, and m: m:step() trains by hand\n";
}

std::string RecipeHelp() {
  return ScopeHelp() + "  .reload      reads the recipe again; names and parameters are lost\n";
}

std::string RanksHelp() {
  return "  each line runs on all ranks, and shows rank 0's value\n"
         "  @1 EXPR, @0-2 EXPR, @all EXPR   the value on those ranks, on them alone\n";
}

std::string AttachHelp() {
  return "  .mode table|json|csv                 how answers are shown\n"
         "  .output [FILE]                       answers are written to FILE; without it, to the terminal again\n"
         "  @0-3 .COMMAND, @all EXPRESSION       asks those ranks; Lua at ranks (.rw)\n"
         "  .detach, Ctrl-D                      leaves; the job continues\n";
}

}  // namespace mslua::repl
