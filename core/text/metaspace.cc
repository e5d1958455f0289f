#include "core/text/metaspace.h"

namespace mslua::text {

Metaspace ReadMetaspace(PartReader* reader) {
  reader->Ignore({"str_rep", "split"});
  Metaspace settings;
  settings.replacement = reader->String("replacement", settings.replacement);
  if (settings.replacement.empty())
    reader->Fail(reader->Wrong("replacement", "expected a character, got an empty text"));
  const bool add = reader->Bool("add_prefix_space", true);
  const std::string scheme = reader->Choice("prepend_scheme", {"always", "first", "never"}, add ? "always" : "never");
  settings.prepend = scheme == "always"  ? Metaspace::Prepend::kAlways
                     : scheme == "first" ? Metaspace::Prepend::kFirst
                                         : Metaspace::Prepend::kNever;
  return settings;
}

}  // namespace mslua::text
