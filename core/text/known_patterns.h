// The regular expressions by which OpenAI's and Meta's vocabularies split text.
#pragma once

namespace mslua::text {

extern const char kCl100kPattern[];  // GPT-4, Llama 3
extern const char kO200kPattern[];   // GPT-4o

}  // namespace mslua::text
