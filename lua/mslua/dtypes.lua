--- Element types, as users write them: ms.float32 is the string "float32".
local M = {}

--- Floating point in 16 bits (IEEE 754 binary16): 11 significant bits, largest number 65504.
M.float16 = "float16"
--- Floating point in 16 bits with float32's range: 8 significant bits.
M.bfloat16 = "bfloat16"
--- Floating point in 32 bits (IEEE 754 binary32); the default of tensors and parameters.
M.float32 = "float32"
--- Floating point in 64 bits (IEEE 754 binary64).
M.float64 = "float64"
--- Integers of 32 bits with a sign; labels and token ids have this type.
M.int32 = "int32"
--- Integers of 64 bits with a sign.
M.int64 = "int64"
--- Integers from 0 to 255; images have this type before they are rescaled.
M.uint8 = "uint8"
--- true or false; comparisons give this type.
M.bool = "bool"

return M
