import type { CommandContext } from './command.ts';

/** Former names of commands. `by`: only of calls with this option, whose value becomes the last word. */
const formerCommands: readonly { readonly was: string; readonly is: string; readonly by?: string }[] = [
  { was: 'key rotate', is: 'key rotate links' },
  { was: 'key receipts', is: 'key rotate receipts' },
  { was: 'key sessions', is: 'key rotate sessions' },
  { was: 'key operator', is: 'key rotate operator' },
  { was: 'app token', is: 'app token revoke', by: '--revoke' },
  { was: 'app token', is: 'app token add' },
  { was: 'user secret', is: 'user rotate-secret' },
];

/** Former names of options, by command. */
const formerOptions: readonly { readonly command: string; readonly was: string; readonly is: string }[] = [
  { command: 'import', was: '--again', is: '--reimport' },
  { command: 'import', was: '--patience', is: '--retry-timeout' },
  { command: 'erase', was: '--as', is: '--id-type' },
  { command: 'erase', was: '--kind', is: '--user-id-type' },
  { command: 'erase', was: '--now', is: '--skip-retention' },
];

/** Moves the value of an option to the end of the words, behind `--`. */
function moveValue(words: readonly string[], option: string): readonly string[] {
  const at = words.findIndex((word) => word === option || word.startsWith(`${option}=`));
  const isJoined = words[at] !== option;
  const value = isJoined ? words[at]?.slice(option.length + 1) : words[at + 1];
  const others = words.toSpliced(at, isJoined ? 1 : 2);
  return value === undefined ? others : [...others, '--', value];
}

function renameCommand(words: readonly string[], note: (was: string, is: string) => void): readonly string[] {
  if (formerCommands.some(({ is }) => words.slice(0, is.split(' ').length).join(' ') === is)) return words;
  const [first, second, ...rest] = words;
  const former = formerCommands.find(
    ({ was, by }) =>
      was === `${first} ${second}` &&
      (by === undefined || rest.some((word) => word === by || word.startsWith(`${by}=`))),
  );
  if (former === undefined) return words;
  if (/^(--help|-h)$/.test(rest[0] ?? '') && former.is.startsWith(`${former.was} `)) return [String(first), ...rest];
  note(`tributary ${former.was}${former.by === undefined ? '' : ` ${former.by}`}`, `tributary ${former.is}`);
  return [...former.is.split(' '), ...(former.by === undefined ? rest : moveValue(rest, former.by))];
}

/**
 * Replaces former names in the words of a call, with a note for each. Version 0.5 removes this file. No value of an
 * option is changed: the parser rejects a value that is the name of an option.
 */
export function replaceFormerNames(words: readonly string[], { printMessage }: Pick<CommandContext, 'printMessage'>) {
  const warn = (was: string, is: string): void =>
    printMessage(`tributary: '${was}' is deprecated and will be removed in version 0.5; use '${is}'`);
  const [command] = words;
  let isOption = true;
  return renameCommand(words, warn).map((word) => {
    isOption &&= word !== '--';
    const [name = ''] = word.split('=', 1);
    const former = formerOptions.find((each) => isOption && each.command === command && each.was === name);
    if (former === undefined) return word;
    warn(former.was, former.is);
    return `${former.is}${word.slice(name.length)}`;
  });
}
