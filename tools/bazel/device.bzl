# The environment of tests of what --device cuda says where there is no driver: they expect the driver's name, or what
# MSLUA_TEST_NO_DEVICE says.
NO_DEVICE = select({
    "//tools/bazel:cpu_only": {"MSLUA_TEST_NO_DEVICE": "built with --config=cpu"},
    "//conditions:default": {},
})
