"""Repository rules that make a Debian package's library, sources or Bazel rules visible to Bazel.

Each looks for what it needs in the system folders and, when something is missing, fails with one
line: what is missing and the apt-get command that brings it. Only the library's own headers are
linked into the repository, so that two libraries never see each other's headers by accident.
"""

# Folder of libraries that are built for one architecture (Debian's multiarch layout), then the
# layout of other distributions.
_LIBRARY_FOLDERS = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
]

_INCLUDE_FOLDERS = [
    "/usr/include",
    "/usr/include/x86_64-linux-gnu",
    "/usr/include/aarch64-linux-gnu",
]

def _missing(ctx, what):
    fail("{name} needs {what}, which this machine lacks: apt-get install {package}".format(
        name = "@" + ctx.name,
        what = what,
        package = ctx.attr.package,
    ))

def _find(ctx, folders, name):
    """The path of `name` in the first of `folders` that has it, or None."""
    for folder in folders:
        path = ctx.path(folder + "/" + name)
        if path.exists:
            return path
    return None

_LIBRARY_BUILD = """
package(default_visibility = ["//visibility:public"])
"""

_LIBRARY_TARGET = """
cc_library(
    name = {name},
    hdrs = glob({globs}),
    defines = {defines},
    includes = {includes},
    linkopts = {linkopts},
    deps = {deps},
)
"""

def _library_impl(ctx):
    includes = []
    for header in ctx.attr.headers:
        # A folder such as openssl/ has a second, architecture-dependent part elsewhere.
        found = False
        for number, folder in enumerate(_INCLUDE_FOLDERS):
            path = ctx.path(folder + "/" + header)
            if path.exists:
                found = True
                include = "include" if number == 0 else "include_arch"
                ctx.symlink(path, include + "/" + header)
                if include not in includes:
                    includes.append(include)
        if not found:
            _missing(ctx, "/usr/include/" + header)

    build = _LIBRARY_BUILD
    previous = []
    for target, libraries in ctx.attr.targets.items():
        linkopts = []
        for library in libraries:
            if not _find(ctx, _LIBRARY_FOLDERS, "lib" + library + ".so") and \
               not _find(ctx, _LIBRARY_FOLDERS, "lib" + library + ".a"):
                _missing(ctx, "lib" + library)
            linkopts.append("-l" + library)
        if len(linkopts) > 1:
            # A package with many small libraries: a program loads only those it uses.
            linkopts = ["-Wl,--push-state,--as-needed"] + linkopts + ["-Wl,--pop-state"]
        build += _LIBRARY_TARGET.format(
            name = repr(target),
            globs = repr([include + "/**" for include in includes]),
            defines = repr(ctx.attr.defines),
            includes = repr(includes),
            linkopts = repr(linkopts + ctx.attr.linkopts),
            deps = repr(previous + ctx.attr.deps),
        )
        previous = [":" + target]
    ctx.file("BUILD", build)

debian_library = repository_rule(
    doc = "A library with headers in /usr/include and, unless it is header-only, a file to link.",
    implementation = _library_impl,
    configure = True,
    local = True,
    attrs = {
        "package": attr.string(mandatory = True, doc = "The Debian package that brings it."),
        "headers": attr.string_list(
            mandatory = True,
            doc = "The library's headers and header folders, relative to /usr/include.",
        ),
        "targets": attr.string_list_dict(
            mandatory = True,
            doc = "Target name to the libraries it links (X for libX); each depends on the one " +
                  "before it.",
        ),
        "defines": attr.string_list(doc = "Macros the headers want."),
        "linkopts": attr.string_list(doc = "What the library itself needs from the linker."),
        "deps": attr.string_list(doc = "Labels of libraries its headers include."),
    },
)

def _sources_impl(ctx):
    root = ctx.path(ctx.attr.path)
    for name in ctx.attr.folders:
        if not root.get_child(name).exists:
            _missing(ctx, ctx.attr.path + "/" + name)
        ctx.symlink(root.get_child(name), name)
    ctx.symlink(ctx.attr.build_file, "BUILD")

debian_sources = repository_rule(
    doc = "A library that Debian ships as sources: built here, with our flags and sanitizers.",
    implementation = _sources_impl,
    configure = True,
    local = True,
    attrs = {
        "package": attr.string(mandatory = True, doc = "The Debian package that brings it."),
        "path": attr.string(mandatory = True, doc = "Where the package puts the sources."),
        "folders": attr.string_list(mandatory = True, doc = "The folders of `path` to link."),
        "build_file": attr.label(mandatory = True, doc = "The BUILD file for the sources."),
    },
)

def _rules_impl(ctx):
    root = ctx.path(ctx.attr.path)
    if not root.exists:
        _missing(ctx, ctx.attr.path)
    for entry in root.readdir():
        if entry.basename != "WORKSPACE":
            ctx.symlink(entry, entry.basename)

debian_rules = repository_rule(
    doc = "A set of Bazel rules that Debian packages.",
    implementation = _rules_impl,
    configure = True,
    local = True,
    attrs = {
        "package": attr.string(mandatory = True, doc = "The Debian package that brings it."),
        "path": attr.string(mandatory = True, doc = "Where the package puts the rules."),
    },
)
