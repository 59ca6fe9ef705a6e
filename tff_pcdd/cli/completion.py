"""Prints a script with which bash or zsh completes programs, flags and values.

    tff-pcdd completion bash > ~/.local/share/bash-completion/completions/tff-pcdd
    tff-pcdd completion zsh > ~/.zfunc/_tff-pcdd    # a folder of fpath, before compinit

It knows what is registered in the package, not the components of your own modules.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence

from tff_pcdd import methods, outputs
from tff_pcdd.cli import flagfiles, front_door, other_programs
from tff_pcdd.errors import one_of, shown
from tff_pcdd.settings import registries
from tff_pcdd.training import ExperimentConfig, RunOptions
from tff_pcdd.training.run_directory import path_settings

# Ends of the names of flags whose values are paths, beside the settings that are.
_PATHS = ("_dir", "_dirs", "_file", flagfiles.FLAGFILE)

# What stands for paths in the place of values.
_FILES = "@files"

_BASH = """
_tff_pcdd() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} flag= values lead= i
  if [[ $word == "=" ]]; then
    flag=$before word=
  elif [[ $before == "=" ]]; then
    flag=${COMP_WORDS[COMP_CWORD - 2]}
  elif [[ $word == --*=* ]]; then
    flag=${word%%=*} lead=$flag= word=${word#*=}
  fi
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "$(_tff_pcdd_programs)" -S " " -- "$word")
  elif [[ -z $flag ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_tff_pcdd_flags "${COMP_WORDS[1]}")" -- "$word")
    for i in "${!COMPREPLY[@]}"; do
      [[ ${COMPREPLY[i]} == *= ]] || COMPREPLY[i]+=" "
    done
  else
    values=$(_tff_pcdd_values "${flag#--}")
    if [[ $values == @files ]]; then
      compopt -o filenames 2> /dev/null
      mapfile -t COMPREPLY < <(compgen -f -P "$lead" -- "$word")
    else
      # What follows the last comma.
      lead+=${word%"${word##*,}"}
      mapfile -t COMPREPLY < <(compgen -W "$values" -P "$lead" -S " " -- "${word##*,}")
    fi
  fi
}
complete -o nospace -F _tff_pcdd tff-pcdd
"""

_ZSH = """
_tff_pcdd() {
  local values each
  if ((CURRENT == 2)); then
    compadd -- ${=$(_tff_pcdd_programs)}
  elif compset -P '--*='; then
    values=$(_tff_pcdd_values ${${IPREFIX#--}%=})
    if [[ $values == @files ]]; then
      _files
    else
      compset -P '*,'
      compadd -- ${=values}
    fi
  else
    for each in ${=$(_tff_pcdd_flags $words[2])}; do
      if [[ $each == *= ]]; then compadd -S '' -- $each; else compadd -- $each; fi
    done
  fi
}
if [[ $funcstack[1] == _tff-pcdd ]]; then _tff_pcdd "$@"; else compdef _tff_pcdd tff-pcdd; fi
"""

_SHELLS = {"bash": ("", _BASH), "zsh": ("#compdef tff-pcdd\n", _ZSH)}


def script(shell: str) -> str:
    """The script for a shell, `bash` or `zsh`."""
    found = [*registries(ExperimentConfig), *registries(RunOptions)]
    values = {registry.setting: registry.names() for registry in found}
    values |= {"algorithms": [*methods.names(), "all"]}
    paths = (flagfiles.FLAGFILE, flagfiles.CONFIG, *path_settings())
    values |= {name: [_FILES] for name in paths}
    flags = {}
    for program, its in other_programs.flags():
        flags[program] = [f"--{flagfiles.FLAGFILE}=", f"--{flagfiles.CONFIG}="]
        for name in its.names():
            if name.endswith(_PATHS):
                values[name] = [_FILES]
            elif choices := its.choices(name):
                values[name] = choices
            flags[program].append(its.usage(name))
    start, driver = _SHELLS[shell]
    return (
        f"{start}# Made by `tff-pcdd completion {shell}`.\n"
        f"_tff_pcdd_programs() {{ echo {' '.join(front_door.PROGRAMS)}; }}\n"
        f"_tff_pcdd_flags() {_cases(flags)}"
        f"_tff_pcdd_values() {_cases(values)}"
        f"{driver}"
    )


def _cases(words: Mapping[str, Sequence[str]]) -> str:
    """The body of a function that prints the words of its argument."""
    lines = [f"    {name}) echo {' '.join(map(shlex.quote, words[name]))} ;;\n" for name in words]
    return f'{{\n  case "$1" in\n{"".join(lines)}  esac\n}}\n'


def run(argv: Sequence[str] | None = None) -> None:
    """Prints the script.

    Args:
        argv: the name of the program, and that of the shell.

    Raises:
        SystemExit: with status 2 unless a shell is named.
    """
    _, *arguments = sys.argv if argv is None else argv
    if arguments and arguments[0] in ("-h", "--help"):
        with outputs.printing("completion"):
            print(__doc__)
    elif len(arguments) == 1 and arguments[0] in _SHELLS:
        with outputs.printing("completion"):
            print(script(arguments[0]), end="")
    else:
        given = " ".join(arguments)
        reason = f"{shown(given)}: {one_of(given, _SHELLS)}" if given else "name bash or zsh"
        print(f"completion: error: {reason}", file=sys.stderr)
        sys.exit(2)
