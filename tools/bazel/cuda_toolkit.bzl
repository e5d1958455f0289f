# CUDA_HOME of the environment as a file, for the one action that needs it: with --action_env every file would be built
# again where it is set.

def _cuda_toolkit(ctx):
    ctx.file("BUILD", 'exports_files(["home"])\n')
    ctx.file("home", ctx.os.environ.get("CUDA_HOME", "") + "\n")

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit,
    environ = ["CUDA_HOME"],
    local = True,
)
