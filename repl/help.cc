#include "repl/help.h"

namespace mslua::repl {

std::string LoopHelp() {
  return "Lua: an expression prints its value (a ; at its end silences it), _ is the last one; local stays\n"
         "  ?name        what an operator, function or name is        Tab  completes names and parameters\n"
         "  .timer on    shows how long each line took, .timer off    Ctrl-C  ends the line, or what runs\n"
         "  .help        this                                         .quit, Ctrl-D  leaves\n";
}

std::string RecipeHelp() {
  return "in scope: recipe, net, dataset, eval_dataset, loss, model, and m: m:step() trains by hand\n"
         "  .reload      reads the recipe again; names and parameters are forgotten\n";
}

std::string AttachHelp() {
  return "  .mode table|json|csv                 how answers are shown\n"
         "  .output [FILE]                       answers are written to FILE; without it, to the terminal again\n"
         "  @0-3 .COMMAND, @all EXPRESSION       asks those ranks; Lua at ranks (.rw)\n"
         "  .detach, Ctrl-D                      leaves; the job continues\n";
}

}  // namespace mslua::repl
