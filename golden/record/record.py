"""The recorder: holds recordings against the real vLLM 0.20.0, and makes new ones.

  record.py verify FILE...                   must get every answer that the files hold
  record.py generate FAMILY COUNT [SEED]     makes traces of a family from random workloads
  record.py watch OUTPUT                     records what a running engine does
  record.py cases FILE...                    must do what conformance/cases says of the release
  record.py families                         names the families

Runs with the interpreter of the environment that install.sh makes. Exit status: 0 when all is well,
1 when an answer differs, 2 when the command line or a file is wrong.
"""

import runtime

if __name__ == "__main__":
    runtime.prepare()
elif __name__ == "__mp_main__":  # in the worker process of a watched engine
    runtime.replace_accelerator()

import argparse  # noqa: E402
import pathlib  # noqa: E402
import sys  # noqa: E402


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Records the real vLLM's scheduling.")
    commands = parser.add_subparsers(dest="command", required=True)

    verify = commands.add_parser("verify", help="give the files' commands to the real scheduler")
    verify.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")
    verify.add_argument("--first", type=int, metavar="N", help="only the first N traces of a file")

    generate = commands.add_parser("generate", help="make traces of a family")
    generate.add_argument("family")
    generate.add_argument("count", type=int)
    generate.add_argument("seed", type=int, nargs="?", default=0, help="the first one [0]")
    generate.add_argument("--output", type=pathlib.Path, default=pathlib.Path("."))

    watch = commands.add_parser("watch", help="record a running engine with a tiny random model")
    watch.add_argument("output", type=pathlib.Path)
    watch.add_argument("--requests", type=int, default=12)
    watch.add_argument("--seed", type=int, default=0)

    cases = commands.add_parser("cases", help="run the cases of public bug reports")
    cases.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")

    commands.add_parser("families", help="name the families that generate knows")

    options = parser.parse_args(arguments)
    # Imported late: vLLM takes half a minute to load, and the help must not.
    match options.command:
        case "verify":
            import verify as verify_command

            return verify_command.run(options.files, options.first)
        case "generate":
            import generate as generate_command

            return generate_command.run(options.family, options.count, options.seed, options.output)
        case "watch":
            import watch as watch_command

            return watch_command.run(options.output, options.requests, options.seed)
        case "cases":
            import cases as cases_command

            return cases_command.run(options.files)
        case _:
            import families

            print("\n".join(families.FAMILIES))
            return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (OSError, ValueError) as error:
        print(f"record.py: {error}", file=sys.stderr)
        sys.exit(2)
