--- Element types, as users write them: ms.float32 is the string "float32".
return {
  float16 = "float16", bfloat16 = "bfloat16", float32 = "float32", float64 = "float64",
  int32 = "int32", int64 = "int64", uint8 = "uint8", bool = "bool",
}
