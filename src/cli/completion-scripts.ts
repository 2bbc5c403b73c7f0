import type { Command, Verb } from './command.ts';
import { flagOf, optionsOf } from './program.ts';
import type { Declared } from './words.ts';

/** What a shell offers for a value: one of a few words, or names of files; neither: it is for the person to know. */
interface Offer {
  readonly choices: readonly string[];
  readonly paths: 'files' | 'folders' | undefined;
}

interface NamedOffer extends Offer {
  readonly name: string;
  readonly about: string;
}

/** A place on the command line, by the words before it: the program's own, that of a group, or of a verb. */
interface Place {
  readonly words: readonly string[];
  /** Names that may stand here. */
  readonly next: readonly { readonly name: string; readonly about: string }[];
  /** Options with a value, and flags. */
  readonly valued: readonly NamedOffer[];
  readonly flags: readonly NamedOffer[];
  /** What the verb's own words are, in their order; the last of them again and again, where it is `isMany`. */
  readonly positions: readonly (NamedOffer & { readonly isMany: boolean })[];
}

const everywhere: readonly NamedOffer[] = [
  { name: '--version', about: 'print the version', choices: [], paths: undefined },
  { name: '--help', about: 'show this help', choices: [], paths: undefined },
];

const toOffer = (name: string, { about, choices = [], offers }: Declared<unknown>): NamedOffer => ({
  name,
  about,
  choices,
  paths: offers,
});

const isListed = ({ summary }: Pick<Command, 'summary'>): boolean => summary !== undefined;
const toNext = ({ name, summary = '' }: Pick<Command, 'name' | 'summary'>) => ({ name, about: summary });

function toPlace(verb: Verb, words: readonly string[]): Place {
  const options = Object.entries(optionsOf(verb)).filter(([, { isHidden }]) => isHidden !== true);
  const pick = (isFlag: boolean): NamedOffer[] =>
    options
      .filter(([, { shown }]) => (shown === undefined) === isFlag)
      .map(([name, declared]) => toOffer(flagOf(name), declared));
  const positions = Object.entries(verb.words ?? {}).map(([name, declared]) => ({
    ...toOffer(name, declared),
    isMany: declared.isMany === true,
  }));
  return { words, next: [], valued: pick(false), flags: [...pick(true), ...everywhere], positions };
}

/** The places of a program with these commands, those that the help leaves out apart. */
export function findPlaces(commands: readonly Command[]): readonly Place[] {
  const bare = { valued: [], flags: everywhere, positions: [] };
  const listed = commands.filter(isListed);
  return [
    { words: [], next: [...listed.map(toNext), { name: 'help', about: 'show the help of a command' }], ...bare },
    ...listed.flatMap((command) =>
      'verbs' in command
        ? [
            { words: [command.name], next: command.verbs.filter(isListed).map(toNext), ...bare },
            ...command.verbs.filter(isListed).map((verb) => toPlace(verb, [command.name, verb.name])),
          ]
        : [toPlace(command, [command.name])],
    ),
  ];
}

const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;
const list = (names: readonly string[]): string => quote(names.join(' '));
/** The names of groups: a word more leads to a place below them. */
const groupsOf = (places: readonly Place[]): string[] =>
  places.flatMap(({ words, next }) => (next.length > 0 ? words : []));

function bashOffer({ choices, paths }: Offer): string {
  return paths === undefined ? `offered=${list(choices)}` : `paths=${paths}`;
}

function bashPlace({ words, next, valued, flags, positions }: Place): string {
  const values = valued.map((option) => `        ${option.name}) ${bashOffer(option)}; return ;;\n`);
  const options = [...valued, ...flags].map(({ name }) => name);
  const paths = positions.find((position) => position.paths !== undefined)?.paths;
  const choices = [...next.map(({ name }) => name), ...positions.flatMap((position) => position.choices)];
  return `    ${quote(words.join(' '))})
      case "$before" in
${values.join('')}      esac
      options=${list(options)}
      offered=${list(choices)}${paths === undefined ? '' : `\n      paths=${paths}`} ;;
`;
}

/** For bash, 3.2 and newer. */
export function bashScript(places: readonly Place[]): string {
  return `# Completion of tributary for bash: source <(tributary completion bash)
_tributary_offers() {
  case "$place" in
${places.map(bashPlace).join('')}  esac
}
_tributary() {
  local word="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}" place="" options="" offered="" paths=""
  # "--name=value" comes as three words.
  if [ "$word" = "=" ]; then word=""
  elif [ "$before" = "=" ]; then before="\${COMP_WORDS[COMP_CWORD-2]}"; fi
  if [ "$COMP_CWORD" -gt 1 ]; then
    place="\${COMP_WORDS[1]}"
    case "$place" in
      ${groupsOf(places).join('|')}) if [ "$COMP_CWORD" -gt 2 ]; then place="$place \${COMP_WORDS[2]}"; fi ;;
    esac
  fi
  _tributary_offers
  case "$word" in -*) offered="$options"; paths="" ;; esac
  local IFS=$' \\n'
  COMPREPLY=($(compgen -W "$offered" -- "$word"))
  if [ -n "$paths" ]; then
    IFS=$'\\n'
    compopt -o filenames 2>/dev/null
    if [ "$paths" = folders ]; then COMPREPLY=($(compgen -d -- "$word")); else COMPREPLY=($(compgen -f -- "$word")); fi
  fi
}
complete -F _tributary tributary
`;
}

/** A text in a specification of \`_arguments\`, which colons and brackets would end. */
const zshText = (text: string): string => text.replaceAll(/[\\:[\]]/g, (sign) => `\\${sign}`);

function zshAction({ choices, paths }: Offer): string {
  if (paths !== undefined) return paths === 'files' ? '_files' : '_files -/';
  return choices.length === 0 ? ' ' : `(${choices.join(' ')})`;
}

function zshPlace({ words, next, valued, flags, positions }: Place): string {
  const skipped = words.length === 0 ? '' : `      shift ${words.length} words; (( CURRENT -= ${words.length} ))\n`;
  const specs: string[] = [
    ...valued.map((option) => quote(`*${option.name}=[${zshText(option.about)}]:value:${zshAction(option)}`)),
    ...flags.map(({ name, about }) => quote(`${name}[${zshText(about)}]`)),
    ...positions.map((position, index) =>
      quote(`${position.isMany ? '*' : index + 1}:${zshText(position.name)}:${zshAction(position)}`),
    ),
    ...(next.length === 0
      ? []
      : [quote(`1:command:((${next.map(({ name, about }) => `${name}\\:${zshWord(about)}`).join(' ')}))`)]),
  ];
  return `    ${quote(words.join(' '))})
${skipped}      _arguments ${specs.join(' \\\n        ')} ;;
`;
}

/** A text behind a word of a list in a specification: one word of the shell. */
const zshWord = (text: string): string => zshText(text).replaceAll(/[\s'"()`$;&|<>{}*?!~#,]/g, (sign) => `\\${sign}`);

/** For zsh: a file _tributary in a folder of fpath, or `source <(tributary completion zsh)`. */
export function zshScript(places: readonly Place[]): string {
  return `#compdef tributary
# Completion of tributary for zsh: source <(tributary completion zsh), after compinit
_tributary() {
  local place=""
  if (( CURRENT > 2 )); then
    place="\${words[2]}"
    case "$place" in
      ${groupsOf(places).join('|')}) if (( CURRENT > 3 )); then place="$place \${words[3]}"; fi ;;
    esac
  fi
  case "$place" in
${places.map(zshPlace).join('')}  esac
}
if [ "$funcstack[1]" = "_tributary" ]; then _tributary "$@"; else compdef _tributary tributary; fi
`;
}

function fishOffer({ choices, paths }: Offer): string {
  if (paths === 'files') return '-r -F';
  return `-x${paths === 'folders' ? " -a '(__fish_complete_directories)'" : choices.length === 0 ? '' : ` -a ${list(choices)}`}`;
}

function fishPlace({ words, next, valued, flags, positions }: Place): string[] {
  const isHere = `-n ${quote(`__tributary_at ${words.join(' ')}`.trimEnd())}`;
  const line = (rest: string): string => `complete -c tributary ${isHere} ${rest}`;
  const isFile = positions.some(({ paths }) => paths !== undefined);
  const choices = positions.flatMap((position) => position.choices);
  return [
    line(isFile ? '-F' : '-f'),
    ...next.map(({ name, about }) => line(`-f -a ${quote(name)} -d ${quote(about)}`)),
    ...(choices.length === 0 ? [] : [line(`-f -a ${list(choices)}`)]),
    ...valued.map((option) => line(`-l ${option.name.slice(2)} ${fishOffer(option)} -d ${quote(option.about)}`)),
    ...flags.map(({ name, about }) => line(`-f -l ${name.slice(2)} -d ${quote(about)}`)),
  ];
}

/** For fish. */
export function fishScript(places: readonly Place[]): string {
  return `# Completion of tributary for fish: tributary completion fish | source
function __tributary_at
  set -l words (commandline -opc)
  set -e words[1]
  set -l place $words[1]
  if contains -- "$words[1]" ${groupsOf(places).join(' ')}
    set place $words[1..2]
  end
  test "$place" = "$argv"
end
${places.flatMap(fishPlace).join('\n')}
`;
}
