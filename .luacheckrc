-- luacheck: recipes, the Lua library, and Lua of the tests.
std = "luajit"
max_line_length = false  -- tools/lint, for every language
-- `self` of a method that needs none, and a callback's arguments that it does not use, are part of a shape.
self = false
unused_args = false
-- `not (a <= b)` is how a comparison catches NaN.
ignore = { "581" }
exclude_files = { ".build", "runs" }
